"""The log of each partition meets its guarantee whatever happens between producer and cluster: one schedule per seed.

Three nodes in the simulated world refuse requests, lose and delay responses, cut connections, crash, come back and
change leaders, while callers use the producer in every way (`tests/support/producer_workload.py`), with random options.
`Promise` defines the guarantees. After the producer's block every record is acknowledged or reported, and the numbers
add up.

A failure prints its seed; ``replay(promise, seed)`` runs it again.
"""

from __future__ import annotations

import functools
import random
from typing import Any

import pytest

import triokafka
from tests.support.producer_ledger import PROMISES, Ledger, Promise
from tests.support.producer_workload import Workload
from tests.support.replicated_cluster import ClusterFaults, ReplicatedCluster
from tests.support.simulated import run_seeds
from triokafka.client.producer.interceptors import ProducerInterceptor, ProducerRecord
from triokafka.testing import Simulation, run_simulation

TOPICS = {"orders": 2, "events": 1}
RECORDS = 150
SEEDS = 30
"""Schedules of each of the seven kinds of producers in the normal run."""
LONG_SEEDS = 1_000

_LONGER_THAN_TROUBLE_MS = 60_000

KINDS: dict[str, tuple[Promise, dict[str, Any]]] = {
    **PROMISES,
    "plain-5-in-flight": (Promise.AT_LEAST_ONCE, {"enable_idempotence": False}),
    "acks-1-1-in-flight": (Promise.IN_ORDER, {"acks": 1, "max_in_flight_requests_per_connection": 1}),
}


class _DropSome(ProducerInterceptor):
    """Drops every tenth record, and raises for every fifteenth."""

    def __init__(self) -> None:
        self._seen = 0

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        self._seen += 1
        if self._seen % 15 == 0:
            raise RuntimeError("an interceptor that stumbles")
        return None if self._seen % 10 == 0 else record


def _options(chance: random.Random) -> dict[str, Any]:
    batch_size = chance.choice([200, 300, 600])
    return {
        "batch_size": batch_size,
        "buffer_memory": chance.choice([3_000, 8_000, 100_000]),
        "max_request_size": chance.choice([900, 3_000]),
        "linger_ms": chance.choice([0, 2, 20]),
        "compression_type": chance.choice(["none", "none", "lz4", "zstd", "gzip", "snappy"]),
        "request_timeout_ms": 2_000,
        "delivery_timeout_ms": chance.choice([60_000, 60_000, 60_000, 2_500]),
        "max_block_ms": chance.choice([60_000, 60_000, 300]),
        "retry_backoff_ms": chance.choice([5, 20, 100]),
        "close_timeout_ms": chance.choice([120_000, 120_000, 120_000, 50]),
        "reconnect_backoff_ms": 10,
        "metadata_max_age_ms": chance.choice([300_000, 200]),
        "interceptors": (_DropSome(),) if chance.random() < 0.15 else (),
    }


async def _schedule(simulation: Simulation, *, promise: Promise, given: dict[str, Any]) -> tuple[Ledger, Any, int]:
    chance = random.Random(f"{simulation.seed}/test")
    options = {**_options(chance), **given}
    too_large = chance.random() < 0.3
    cluster = ReplicatedCluster(max_batch_bytes=560 if too_large else 1 << 20, **TOPICS)
    address = await cluster.start_on(simulation)
    denials = chance.random() < 0.2
    faults = ClusterFaults(
        simulation,
        cluster,
        chance,
        count=chance.randrange(5, 30),
        pause=chance.choice([0.01, 0.05]),
        stale=promise is Promise.EXACTLY_ONCE,
        denials=denials,
        request_timeout=options["request_timeout_ms"] / 1000,
    )
    workload = Workload(chance, TOPICS, records=RECORDS, callers=chance.choice([1, 3, 5]))
    producer = triokafka.Producer(bootstrap_servers=address, world=simulation.host("client").world, **options)
    await workload.run(producer, during=lambda: simulation.nursery.start_soon(faults.run))
    ledger = workload.ledger
    repeats = ledger.check(cluster.entries(), promise, most_in_batch=100)
    patient = min(options["delivery_timeout_ms"], options["close_timeout_ms"]) >= _LONGER_THAN_TROUBLE_MS
    if patient and not denials and promise is not Promise.AT_MOST_ONCE:
        assert not ledger.failed, f"records failed although all faults had ended: {list(ledger.failed.items())[:3]}"
    return ledger, cluster, repeats


def replay(name: str, seed: int) -> tuple[Ledger, Any, int]:
    """Run one schedule again; raise the same error as the first time."""
    promise, given = KINDS[name]
    return run_simulation(functools.partial(_schedule, promise=promise, given=given), seed)


def _run(name: str, seeds: range) -> list[tuple[Ledger, Any, int]]:
    results = []
    for seed in seeds:
        try:
            results.append(replay(name, seed))
        except BaseException as error:
            error.add_note(f"run it again with tests.simulation.test_producer_order.replay({name!r}, {seed})")
            raise
    return results


@pytest.mark.parametrize("name", KINDS)
def test_log_meets_its_guarantee_through_faults(name: str) -> None:
    results = _run(name, range(SEEDS))
    acknowledged = sum(len(ledger.acknowledged) for ledger, _, _ in results)
    failed = sum(len(ledger.failed) for ledger, _, _ in results)
    assert acknowledged > 10 * failed > 0, "too many records fail, or none"
    repeats = sum(repeated for _, _, repeated in results)
    if KINDS[name][0] in (Promise.IN_ORDER, Promise.AT_LEAST_ONCE):
        assert repeats, "no schedule repeated a record: the faults have no effect"
    if KINDS[name][0] is Promise.EXACTLY_ONCE:
        assert sum(cluster.dropped_repeats for _, cluster, _ in results), "no batch was sent twice"


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", KINDS)
def test_thousands_of_schedules(name: str) -> None:
    """The same with other seeds; failures are printed, and the run continues."""
    run_seeds(name, range(SEEDS, SEEDS + LONG_SEEDS), functools.partial(replay, name))
