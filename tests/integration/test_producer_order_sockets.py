"""The guarantees of `tests/simulation/test_producer_order.py` on real sockets: 50 schedules through fault proxies.

Our own broker runs in this loop, with injected errors in its responses. A proxy between it and the producer cuts
connections within requests and responses, drops responses, holds data and resets. A failure prints its seed; real
sockets replay it only roughly.
"""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest
import trio

import triokafka
from tests.support.fault_proxy import ProxyTrouble, proxied_world
from tests.support.producer_ledger import PROMISES, Promise
from tests.support.producer_workload import Workload
from tests.support.read_back import read_all
from triokafka import errors
from triokafka.broker_stub.broker import Broker
from triokafka.broker_stub.faults.faults import Fault
from triokafka.testing import running_broker

SCHEDULES = 10
"""Of each promise."""
LONG_SCHEDULES = 100

_REFUSALS = (
    errors.NotLeaderForPartitionError,
    errors.NotEnoughReplicasError,
    errors.CorruptRecordError,
    errors.KafkaStorageError,
)
_AFTER_APPEND = (errors.RequestTimedOutError, errors.NotEnoughReplicasAfterAppendError)


def _inject(broker: Broker, topic: str, chance: random.Random) -> None:
    for _ in range(chance.randrange(4)):
        error = chance.choice(_REFUSALS)
        broker.faults.arm(Fault(error, api_key=0, topic=topic, times=2, skip=chance.randrange(5)))
    for _ in range(chance.randrange(4)):
        error = chance.choice(_AFTER_APPEND)  # type: ignore[assignment]
        broker.faults.arm(Fault(error, api_key=0, topic=topic, skip=chance.randrange(5), after_append=True))


async def _schedule(broker: Broker, promise: Promise, given: dict[str, Any], seed: int) -> int:
    """Run one schedule; return how many records are in the log more than once."""
    chance = random.Random(seed)
    mark = uuid.uuid4().hex[:8]
    topics = {f"orders-{mark}": 2, f"events-{mark}": 1}
    async with triokafka.AdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        largest = chance.choice(["1000000", "600"])
        await admin.create_topics(
            [triokafka.NewTopic(name, count, 1, {"max.message.bytes": largest}) for name, count in topics.items()]
        )
    if given.get("acks") != 0:
        for name in topics:
            _inject(broker, name, chance)
    workload = Workload(chance, topics, records=200, pause=0.01, sizes=(10, 60, 90, 400))
    async with proxied_world() as world, trio.open_nursery() as nursery:
        faults = ProxyTrouble(
            world, chance, count=chance.randrange(4, 12), stale=promise is Promise.EXACTLY_ONCE, longest=0.25
        )
        producer = triokafka.Producer(
            bootstrap_servers=broker.bootstrap_servers,
            world=world,
            batch_size=chance.choice([300, 800]),
            buffer_memory=chance.choice([3_000, 100_000]),
            linger_ms=chance.choice([0, 2]),
            compression_type=chance.choice(["none", "none", "lz4", "zstd"]),
            request_timeout_ms=150,
            retry_backoff_ms=5,
            retry_backoff_max_ms=50,
            reconnect_backoff_ms=5,
            reconnect_backoff_max_ms=50,
            **given,
        )
        await workload.run(producer, during=lambda: nursery.start_soon(faults.run))
        nursery.cancel_scope.cancel()
    entries = await read_all(broker.bootstrap_servers, topics)
    if promise is not Promise.AT_MOST_ONCE:
        assert not workload.ledger.failed
    return workload.ledger.check(entries, promise, most_in_batch=100)


async def _run(name: str, seeds: range) -> int:
    promise, given = PROMISES[name]
    repeats = 0
    limit = trio.CapacityLimiter(5)

    async def one(seed: int) -> None:
        nonlocal repeats
        async with limit:
            try:
                with trio.fail_after(60):
                    repeats += await _schedule(broker, promise, given, seed)  # type: ignore[arg-type]
            except BaseException as error:
                error.add_note(f"{name}, seed {seed}")
                raise

    async with running_broker() as broker, trio.open_nursery() as nursery:
        for seed in seeds:
            nursery.start_soon(one, seed)
    return repeats


@pytest.mark.parametrize("name", PROMISES)
async def test_log_meets_its_guarantee_despite_broken_connections(name: str) -> None:
    repeats = await _run(name, range(SCHEDULES))
    if PROMISES[name][0] in (Promise.IN_ORDER, Promise.AT_LEAST_ONCE):
        assert repeats, "no schedule repeated a record: the faults have no effect"


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", PROMISES)
async def test_hundreds_of_schedules(name: str) -> None:
    await _run(name, range(SCHEDULES, SCHEDULES + LONG_SCHEDULES))
    print(f"{name}: {LONG_SCHEDULES} schedules on real sockets", flush=True)
