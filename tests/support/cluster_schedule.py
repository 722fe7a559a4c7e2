"""Schedules of faults: three whole nodes and our clients in the simulated world.

The seed chooses the faults. Producers send throughout, and a reader reads committed records meanwhile. Afterwards all
faults end: within 30 seconds every partition accepts records again. Then every acknowledged record is in the log once
and in order, the reader's polls agree with the log (see `ReaderHistory`), and all replicas have the same bytes.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import trio

import triokafka
from tests.support.producer_ledger import Ledger, Promise
from tests.support.producer_workload import Workload
from tests.support.read_back import read_all
from tests.support.reader_history import ReaderHistory
from tests.support.simulated_cluster import SimulatedCluster
from triokafka.errors import KafkaError
from triokafka.structs import TopicPartition
from triokafka.testing import Simulation

TOPICS = {"orders": 2, "events": 1}
PROBE = {"probe": 3}
PROGRESS_SECONDS = 30.0

Inject = Callable[[SimulatedCluster, random.Random, int], Awaitable[None]]


async def inject_faults(cluster: SimulatedCluster, chance: random.Random, count: int) -> None:
    """Inject so many faults. At most one node at a time loses its process or its disk's unsynced data."""
    network = cluster.simulation.network
    for _ in range(count):
        await trio.sleep(chance.uniform(0.1, 4.0))
        node = chance.choice(cluster.nodes)
        kind = chance.choice(("kill", "kill", "power cut", "stop", "isolate", "isolate", "half-open", "cuts", "slow"))
        cluster.simulation.record("fault", kind, node.name)
        if kind in ("kill", "power cut", "stop"):
            if kind == "stop":
                await node.stop()
            else:
                await node.kill(power_cut=kind == "power cut")
            await trio.sleep(chance.choice((0.0, 0.5, chance.uniform(0, 8))))
            cluster.heal()
            # A second disk may lose its unsynced data only after the first has copied what it had lost.
            await cluster.wait_in_sync(TOPICS, within=120.0)
        elif kind == "isolate":
            cluster.isolate(node, chance)
            await trio.sleep(chance.uniform(0.2, 8.0))
            cluster.heal()
        elif kind == "half-open":
            for other in cluster.nodes:
                if other is not node:
                    network.half_open(node.name, other.name, one_way=chance.random() < 0.5)
        elif kind == "cuts":
            network.conditions.cut = 0.02
            await trio.sleep(chance.uniform(0.1, 2.0))
            network.conditions.cut = 0
        else:
            network.conditions.max_delay = chance.choice((0.05, 0.3))
            await trio.sleep(chance.uniform(0.1, 4.0))
            network.conditions.max_delay = 0.002


async def _read_meanwhile(cluster: SimulatedCluster, history: ReaderHistory) -> None:
    """Read committed records until cancelled."""
    partitions = [TopicPartition(name, number) for name, count in TOPICS.items() for number in range(count)]
    async with triokafka.Consumer(
        bootstrap_servers=cluster.bootstrap, world=cluster.client_world("reader"), auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign(partitions)
        while True:
            try:
                polled = await consumer.poll(timeout_ms=500)
            except KafkaError as error:
                if not error.retriable:
                    raise
                continue
            history.polls.append(
                {partition: [(one.offset, one.value) for one in records] for partition, records in polled.items()}
            )


async def run_schedule(simulation: Simulation, inject: Inject = inject_faults) -> tuple[Ledger, int]:
    """Run the schedule of the seed; return what was acknowledged, and the number of repeats in the log."""
    chance = random.Random(f"{simulation.seed}/test")
    cluster = SimulatedCluster(simulation)
    cluster.start()
    await cluster.create_topics({**TOPICS, **PROBE})
    workload = Workload(chance, TOPICS, records=200, flushes=False)
    over = trio.Event()
    workload.go_on_until(over, pause=0.3)
    producer = triokafka.Producer(
        bootstrap_servers=cluster.bootstrap,
        world=cluster.client_world("producer"),
        batch_size=chance.choice([300, 800]),
        linger_ms=chance.choice([0, 2]),
        request_timeout_ms=5_000,
        retry_backoff_ms=20,
        delivery_timeout_ms=600_000,
        close_timeout_ms=600_000,
        close_stall_timeout_ms=600_000,
    )
    history = ReaderHistory()

    async def faults() -> None:
        await inject(cluster, chance, chance.randrange(2, 7))
        cluster.heal()
        with trio.move_on_after(PROGRESS_SECONDS) as scope:
            await _wait_for_acceptance(cluster)
        assert not scope.cancelled_caught, f"no progress within {PROGRESS_SECONDS:.0f} s of healing"
        over.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(_read_meanwhile, cluster, history)
        await workload.run(producer, during=lambda: nursery.start_soon(faults))
        await cluster.wait_in_sync(TOPICS)
        nursery.cancel_scope.cancel()
    ledger = workload.ledger
    assert not ledger.failed, next(iter(ledger.failed.items()))
    entries = await read_all(cluster.bootstrap, TOPICS, world=cluster.client_world("auditor"))
    repeats = ledger.check(entries, Promise.EXACTLY_ONCE, most_in_batch=100)
    places = {(TopicPartition(one.topic, one.partition), one.offset) for one in ledger.acknowledged.values()}
    history.check(entries, places)
    await cluster.wait_replicas_equal(TOPICS)
    await cluster.stop()
    return ledger, repeats


async def _wait_for_acceptance(cluster: SimulatedCluster) -> None:
    """Send one record to every partition of a topic without readers, and wait for the acknowledgements."""
    async with triokafka.Producer(
        bootstrap_servers=cluster.bootstrap, world=cluster.client_world(), linger_ms=0, delivery_timeout_ms=60_000
    ) as producer:
        deliveries = [
            await producer.send(name, b"probe", partition=number)
            for name, count in PROBE.items()
            for number in range(count)
        ]
        for delivery in deliveries:
            await delivery
