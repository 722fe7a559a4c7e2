"""A producer and a group with three brokers whose connections die silently, one fault soon after another.

In virtual time. No pause is longer than the cost of one dead connection: no client waits for a second one after it.
"""

from __future__ import annotations

import random

import pytest
import trio

import triokafka
from triokafka.testing import RunningCluster, Simulation, run_simulation, running_cluster

LONGEST = 10.5
"""Seconds: ``connections_max_silence_ms``, the 0.5 s for which a broker may hold a fetch, and a back-off."""
FAULTS = ("half-open", "requests lost", "answers lost", "drip")
ROUNDS = 6
SEEDS = 3
LONG_SEEDS = 60


class Pauses:
    """The longest time between two records that were acknowledged, or read."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.count = 0
        self._last: float | None = None

    def note(self) -> None:
        now = trio.current_time()
        if self._last is not None:
            self.longest = max(self.longest, now - self._last)
        self.count += 1
        self._last = now


def strike(simulation: Simulation, fault: str, chance: random.Random) -> None:
    """Start a fault on all connections of both clients, or on those to one broker."""
    network = simulation.network
    ports = {connection.streams[1].local_address[1] for connection in network.connections}
    hit = ports if fault == "half-open" else {chance.choice(sorted(ports))}
    for connection in network.connections:
        client, _ = connection.nodes
        if client == "cluster" or connection.streams[1].local_address[1] not in hit:
            continue
        if fault == "drip":
            connection.slow_down(client, 2.0, both=True)
        else:
            connection.lose("cluster" if fault == "answers lost" else client, both=fault == "half-open")


async def produce(simulation: Simulation, cluster: RunningCluster, acknowledged: Pauses, done: trio.Event) -> None:
    async with triokafka.Producer(
        world=simulation.host("writer").world, bootstrap_servers=cluster.bootstrap_servers, linger_ms=0
    ) as producer:
        while not done.is_set():
            await (await producer.send("t", b"%d" % acknowledged.count, partition=0))
            acknowledged.note()
            await trio.sleep(0.5)


async def consume(simulation: Simulation, cluster: RunningCluster, read: Pauses) -> None:
    async with triokafka.Consumer(
        "t",
        world=simulation.host("reader").world,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
    ) as consumer:
        async for record in consumer:
            assert record.value == b"%d" % read.count
            read.note()


async def life(simulation: Simulation, seed: int) -> None:
    chance = random.Random(seed)
    acknowledged, read, done = Pauses(), Pauses(), trio.Event()
    host = simulation.host("cluster").world
    async with running_cluster(nodes=3, world=host, group_initial_rebalance_delay_ms=0) as cluster:
        await cluster.create_topic("t", partitions=1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce, simulation, cluster, acknowledged, done)
            nursery.start_soon(consume, simulation, cluster, read)
            for _ in range(ROUNDS):
                seen = acknowledged.count, read.count
                while acknowledged.count < seen[0] + 5 or read.count < seen[1] + 5:
                    await trio.sleep(0.1)
                strike(simulation, chance.choice(FAULTS), chance)
                await trio.sleep(12)
            done.set()
            while read.count < acknowledged.count:
                await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
    assert max(acknowledged.longest, read.longest) < LONGEST


@pytest.mark.parametrize(
    "seed", [*range(SEEDS), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(SEEDS, LONG_SEEDS))]
)
def test_no_client_waits_for_a_second_dead_connection(seed: int) -> None:
    run_simulation(lambda simulation: life(simulation, seed), seed)
