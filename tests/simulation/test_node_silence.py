"""Silence between two nodes of a cluster: half-open connections, links that drop or drip. In virtual time.

The clients reach all nodes, and do not know of the fault. In-sync sets shrink to the nodes that reach each other, so
that every partition accepts records again after a bounded wait. When the silence ends, or at once if only the present
connections were hit, the sets grow again. Every acknowledged record is in the log once and in order.
"""

from __future__ import annotations

import functools
import random

import pytest
import trio

import triokafka
from tests.support.read_back import read_all
from tests.support.simulated import run_seeds
from tests.support.simulated_cluster import SESSION_SECONDS, SimulatedCluster
from triokafka.structs import TopicPartition
from triokafka.testing import Simulation, run_simulation

TOPIC = {"orders": 3}
LAG_SECONDS = 4.0
REQUEST_SECONDS = 5.0
SOCKET_SECONDS = 6.0
"""``replica.socket.timeout.ms``: how long a follower waits for the response to a fetch."""
LONGEST_PAUSE = SESSION_SECONDS + 1.5 * LAG_SECONDS + REQUEST_SECONDS + 4.0
"""A session ends and a lagging replica leaves the set; a request to the former leader times out; back-offs."""
FAULTS = ("half-open", "half-open one way", "black hole", "black hole one way", "drip", "drip one way")
LONG_SEEDS = 300


class Writer:
    """Sends numbered records to one partition, each after the acknowledgement of the previous one."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.acknowledged: list[tuple[int, bytes]] = []
        self.longest_pause = 0.0

    async def run(self, producer: triokafka.Producer, over: trio.Event) -> None:
        last = trio.current_time()
        while not over.is_set():
            value = b"%d-%d" % (self.partition, len(self.acknowledged))
            metadata = await (await producer.send("orders", value, partition=self.partition))
            self.acknowledged.append((metadata.offset, value))
            self.longest_pause = max(self.longest_pause, trio.current_time() - last)
            last = trio.current_time()
            await trio.sleep(0.3)


def strike(cluster: SimulatedCluster, fault: str, one: str, other: str) -> None:
    """Start a fault between two nodes, in one direction or both."""
    network, one_way = cluster.simulation.network, fault.endswith("one way")
    if fault.startswith("half-open"):
        network.half_open(one, other, one_way=one_way)
    elif fault.startswith("black hole"):
        network.black_hole(one, other, one_way=one_way)
    else:
        network.drip(one, other, 3.0, one_way=one_way)


async def life(simulation: Simulation, fault: str) -> None:
    chance = random.Random(f"{simulation.seed}/{fault}")
    cluster = SimulatedCluster(
        simulation,
        replica_lag_time_max_ms=int(LAG_SECONDS * 1000),
        replica_socket_timeout_ms=int(SOCKET_SECONDS * 1000),
    )
    cluster.start()
    await cluster.wait_unfenced()
    await cluster.create_topics(TOPIC)
    one, other = chance.sample(cluster.nodes, 2)
    over = trio.Event()
    writers = [Writer(number) for number in range(TOPIC["orders"])]
    async with (
        triokafka.Producer(
            bootstrap_servers=cluster.bootstrap,
            world=cluster.client_world("producer"),
            linger_ms=0,
            request_timeout_ms=int(REQUEST_SECONDS * 1000),
            delivery_timeout_ms=600_000,
        ) as producer,
        trio.open_nursery() as nursery,
    ):
        for writer in writers:
            nursery.start_soon(writer.run, producer, over)
        await trio.sleep(1)
        strike(cluster, fault, one.name, other.name)
        await trio.sleep(12)
        if fault.startswith("black hole"):
            assert smallest_set(cluster) < 3, "the unreachable replicas are still in sync"
            simulation.network.heal()
        # The connections hit by the fault have been replaced by then.
        await cluster.wait_in_sync(TOPIC, within=30.0)
        over.set()
    longest = max(writer.longest_pause for writer in writers)
    assert longest < LONGEST_PAUSE, f"a partition accepted no record for {longest:.1f} s"
    entries = await read_all(cluster.bootstrap, TOPIC, world=cluster.client_world("auditor"))
    for writer in writers:
        assert entries[TopicPartition("orders", writer.partition)] == writer.acknowledged
    await cluster.wait_replicas_equal(TOPIC)
    await cluster.stop()


def smallest_set(cluster: SimulatedCluster) -> int:
    """Return the size of the smallest in-sync set by the metadata of the active controller."""
    active = next(node.node for node in cluster.nodes if node.node is not None and node.node.is_active_controller)
    return min(len(partition.isr) for _, partition in active.metadata.image.partitions())


@pytest.mark.parametrize("fault", FAULTS)
def test_cluster_continues_while_two_nodes_cannot_reach_each_other(fault: str) -> None:
    run_simulation(lambda simulation: life(simulation, fault), 1)


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("fault", FAULTS)
def test_cluster_continues_through_silence_of_many_seeds(fault: str) -> None:
    def replay(seed: int) -> None:
        run_simulation(functools.partial(life, fault=fault), seed)

    run_seeds(f"node silence, {fault}", range(2, LONG_SEEDS), replay)
