"""Groups on three nodes whose coordinator is cut off from the controller or the other brokers, while clients reach it.

Some members reach only one side. The former coordinator cannot commit; members on the other side find a new one, which
assigns them the partitions of the unreachable members. After the partition heals, every partition has one owner, no
acknowledged commit is lost, and every record is processed.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping
from typing import Any

import pytest
import trio

import triokafka
from tests.support.group_faults import (
    EVERYTHING,
    PARTITIONS,
    PROTOCOLS,
    REBALANCE_TIMEOUT_MS,
    SESSION_MS,
    Group,
    Ledger,
    Protocol,
    until,
)
from tests.support.simulated import run_seeds
from tests.support.simulated_cluster import SimulatedCluster, SimulatedNode
from triokafka.errors import KafkaError
from triokafka.testing import Simulation, run_simulation
from triokafka.topic_names import GROUP_METADATA_TOPIC

MEMBERS = ("m0", "m1", "m2")
LONG_SEEDS = 60


class CommittingGroup(Group):
    """A group on a cluster; ``acknowledged`` are the highest commits that a coordinator has acknowledged."""

    def __init__(
        self, cluster: SimulatedCluster, ledger: Ledger, chance: random.Random, options: Mapping[str, Any]
    ) -> None:
        super().__init__(cluster.simulation, ledger, chance, {**options, "bootstrap_servers": cluster.bootstrap})
        self.acknowledged = [0] * PARTITIONS

    async def _poll_and_commit(self, name: str, consumer: triokafka.Consumer) -> None:
        while True:
            found = await consumer.poll(timeout_ms=1_000, max_records=10)
            for records in found.values():
                for record in records:
                    await self._handle(name, record)
            offsets = {partition: records[-1].offset + 1 for partition, records in found.items() if records}
            try:
                if offsets:
                    await consumer.commit(offsets, timeout_ms=10_000)
            except KafkaError:
                continue  # the new owner of the partitions processes them again
            for partition, offset in offsets.items():
                self.acknowledged[partition.partition] = max(self.acknowledged[partition.partition], offset)


async def produce(cluster: SimulatedCluster, ledger: Ledger, count: int) -> None:
    """Write records, each after the acknowledgement of the previous one."""
    async with triokafka.Producer(
        bootstrap_servers=cluster.bootstrap,
        world=cluster.client_world(),
        request_timeout_ms=3_000,
        delivery_timeout_ms=600_000,
        max_block_ms=600_000,
    ) as producer:
        for number in range(count):
            metadata = await (await producer.send("t", b"%d" % number, partition=number % PARTITIONS))
            ledger.written[metadata.partition] = max(ledger.written[metadata.partition], metadata.offset + 1)
            await trio.sleep(0.1)


async def coordinator_of(cluster: SimulatedCluster) -> SimulatedNode:
    """Return the node of the group's coordinator."""
    active = await cluster.wait_active()
    number = active.running_node.broker.group_coordinator.runtime.partition_for("g")
    leader = active.image.topics[GROUP_METADATA_TOPIC].partitions[number].leader
    return next(node for node in cluster.nodes if node.number == leader)


async def cut_off(cluster: SimulatedCluster, chance: random.Random) -> None:
    """Separate the group's coordinator from nodes, and some members from one of the sides."""
    network, active = cluster.simulation.network, await cluster.wait_active()
    node = await coordinator_of(cluster)
    others = [other for other in cluster.nodes if other is not node]
    how = chance.choice(("all", "all", "controller", "one way"))
    targets = others if how != "controller" else [active] if active is not node else others[:1]
    for other in targets:
        network.partition(node.name, other.name, one_way=how == "one way")
    for name in MEMBERS:
        match chance.choice(("both", "both", "both", "coordinator", "others")):
            case "coordinator":
                for other in others:
                    network.partition(name, other.name)
            case "others":
                network.partition(name, node.name)


async def life(simulation: Simulation, protocol: Protocol, records: int) -> None:
    chance = random.Random(f"{simulation.seed}/{protocol}")
    cluster = SimulatedCluster(
        simulation,
        group_consumer_session_timeout_ms=SESSION_MS,
        group_consumer_heartbeat_interval_ms=500,
        group_consumer_min_session_timeout_ms=1_000,
        group_consumer_min_heartbeat_interval_ms=100,
    )
    cluster.start()
    await cluster.wait_unfenced()
    await cluster.create_topics({"t": PARTITIONS})
    ledger = Ledger()
    group = CommittingGroup(cluster, ledger, chance, PROTOCOLS[protocol])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce, cluster, ledger, records)
        for name in MEMBERS:
            group.start(name)
        await until(lambda: group.stable, 60, group.describe)
        for _ in range(chance.choice((1, 2))):
            await cut_off(cluster, chance)
            if chance.random() < 0.3:
                await trio.sleep(chance.uniform(0, 10))
                if group.down:
                    group.start(group.down[0])
            await trio.sleep(chance.choice((2, 8, 15, 40)) * chance.random())
            simulation.network.heal()
            await trio.sleep(chance.choice((0, 3, 20)))
        await trio.sleep(REBALANCE_TIMEOUT_MS / 1000)
        await until(lambda: group.stable, 60, group.describe)
    await until(lambda: ledger.all_handled, 60, group.describe)
    async with triokafka.Consumer(
        bootstrap_servers=cluster.bootstrap, group_id="g", world=cluster.client_world()
    ) as reader:
        committed = await reader.committed(EVERYTHING)
    for partition, position in committed.items():
        offset = 0 if position is None else position.offset
        assert group.acknowledged[partition.partition] <= offset, f"a commit of {partition} is lost"
        ledger.sees(partition.partition, offset)
    await produce(cluster, ledger, PARTITIONS)
    await until(lambda: ledger.all_handled, 20, group.describe)
    assert group.stable, group.describe()
    await cluster.stop()


def run(protocol: Protocol, seed: int, records: int = 600) -> None:
    """Run one schedule of a group."""
    run_simulation(lambda simulation: life(simulation, protocol, records), seed)


@pytest.mark.parametrize("protocol", ["cooperative", "consumer"])
def test_no_commit_is_lost_and_every_partition_has_one_owner_after_the_heal(protocol: Protocol) -> None:
    run(protocol, 2, records=120)


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_groups_whose_coordinator_is_cut_off_with_many_seeds(protocol: Protocol) -> None:
    run_seeds(f"group partitions, {protocol}", range(LONG_SEEDS), functools.partial(run, protocol))
