"""What the active controller does at intervals in a whole cluster, and what the next one continues. In virtual time."""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio

from tests.support.simulated import current_simulation, simulated
from tests.support.simulated_cluster import DATA, SimulatedCluster, SimulatedNode, running_nodes
from triokafka import NewTopic
from triokafka.broker_stub.metadata import MetadataImage, PartitionImage
from triokafka.broker_stub.metadata.records import decode_batches
from triokafka.client.admin import ConfigResource
from triokafka.protocol.stored.cluster_metadata import NoOpRecord
from triokafka.structs import TopicPartition

BROKER, CONTROLLER = ("broker",), ("controller",)
INTERVAL = 20
"""Seconds between two checks; the default of both is five minutes."""


def leaders(image: MetadataImage) -> list[int]:
    return [partition.leader for _, partition in sorted(image.topics["t"].partitions.items())]


async def create(cluster: SimulatedCluster, *replicas: tuple[int, ...], **configs: str) -> None:
    """Create the topic ``t`` with these replicas, and wait until they are in sync."""
    brokers = [node for node in cluster.nodes if node.is_broker]
    with trio.fail_after(60):
        await brokers[0].wait_for(lambda image: sum(broker.active for broker in image.brokers.values()) == len(brokers))
    named = {name.replace("_", "."): value for name, value in configs.items()}
    async with cluster.admin() as admin:
        await admin.create_topics([NewTopic("t", configs=named, assignments=dict(enumerate(replicas)))])
    await cluster.wait_in_sync({"t": len(replicas)})


@pytest.mark.parametrize("enabled", [True, False])
def test_leaders_return_to_a_node_that_was_restarted(enabled: bool) -> None:
    """``auto.leader.rebalance.enable``"""

    @simulated
    async def run() -> None:
        async with running_nodes(
            current_simulation(),
            auto_leader_rebalance_enable=enabled,
            leader_imbalance_check_interval_seconds=INTERVAL,
        ) as cluster:
            await create(cluster, (1, 2, 3), (2, 3, 1), (3, 1, 2))
            active = await cluster.wait_active()
            lost = next(node for node in cluster.nodes if node is not active)
            await lost.kill()
            with trio.fail_after(10):
                image = await active.wait_for(lambda image: lost.number not in leaders(image))
            assert -1 not in leaders(image)
            lost.start()
            await cluster.wait_in_sync({"t": 3})
            assert lost.number not in leaders(active.image), "it is in sync and does not lead yet"
            if enabled:
                with trio.fail_after(INTERVAL + 1):
                    await active.wait_for(lambda image: leaders(image) == [1, 2, 3])
            else:
                await trio.sleep(3 * INTERVAL)
                assert lost.number not in leaders(active.image)

    run()


@simulated
async def test_replica_out_of_sync_leads_after_its_topic_allows_it() -> None:
    """``unclean.leader.election.interval.ms``"""
    async with running_nodes(
        current_simulation(), (CONTROLLER, BROKER, BROKER), unclean_leader_election_interval_ms=INTERVAL * 1_000
    ) as cluster:
        active, leader, behind = cluster.nodes
        await create(cluster, (2, 3), min_insync_replicas="1")
        await behind.kill()
        with trio.fail_after(10):
            await active.wait_for(lambda image: image.topics["t"].partitions[0].isr == (2,))
        await leader.kill()
        with trio.fail_after(10):
            await active.wait_for(lambda image: leaders(image) == [-1])
        behind.start()
        await behind.wait_started()
        await trio.sleep(2 * INTERVAL)
        assert leaders(active.image) == [-1], "the broker may lack records"
        async with cluster.admin() as admin:
            allowed = {ConfigResource.topic("t"): {"unclean.leader.election.enable": "true"}}
            await admin.incremental_alter_configs(allowed)
        with trio.fail_after(INTERVAL + 1):
            image = await active.wait_for(lambda image: leaders(image) == [3])
        assert image.topics["t"].partitions[0].isr == (3,)


@pytest.mark.parametrize("end", ["completed", "cancelled"])
def test_reassignment_continues_after_the_active_controller_was_killed(end: str) -> None:
    """The new replica cannot reach the leader while that happens."""
    moved = TopicPartition("t", 0)

    def state(node: SimulatedNode) -> PartitionImage:
        return node.image.topics["t"].partitions[0]

    @simulated
    async def run() -> None:
        roles = (CONTROLLER, CONTROLLER, CONTROLLER, BROKER, BROKER)
        async with running_nodes(current_simulation(), roles) as cluster, cluster.admin() as admin:
            old, new = cluster.nodes[3:]
            await create(cluster, (old.number,), min_insync_replicas="1")
            cluster.simulation.network.partition(old.name, new.name)
            await admin.alter_partition_reassignments({moved: [new.number]})
            first = await cluster.wait_active()
            await trio.sleep(1)
            assert state(first).adding_replicas == (new.number,)
            await first.kill()
            second = await cluster.wait_active()
            assert second is not first
            listed = (await admin.list_partition_reassignments())[moved]
            assert (listed.adding_replicas, listed.removing_replicas) == ((new.number,), (old.number,))
            if end == "cancelled":
                await admin.alter_partition_reassignments({moved: None})
            cluster.simulation.network.heal()
            with trio.fail_after(60):
                await second.wait_for(lambda image: not image.topics["t"].partitions[0].reassigning)
            holder = old if end == "cancelled" else new
            assert (state(second).replicas, state(second).isr) == ((holder.number,), (holder.number,))
            with trio.fail_after(10):
                await holder.wait_for(lambda image: image.topics["t"].partitions[0].leader == holder.number)
            assert not await admin.list_partition_reassignments()
            first.start()
            await first.wait_started()
            with trio.fail_after(10):
                await first.wait_for(lambda image: image.topics["t"].partitions[0].replicas == (holder.number,))

    run()


def no_op_times(node: SimulatedNode) -> list[int]:
    """When the records without effect in a node's metadata log were appended, in ms."""
    folder = f"{DATA}/__cluster_metadata-0"
    names = sorted(name for name in node.host.disk.list_dir(folder) if name.endswith(".log"))
    data = b"".join(bytes(node.host.disk.read_file(f"{folder}/{name}")) for name in names)
    return [
        batch.timestamp_ms
        for batch in decode_batches(data)
        for record in batch.records
        if isinstance(record, NoOpRecord)
    ]


@simulated
async def test_idle_controller_appends_a_record_at_each_interval() -> None:
    """``metadata.max.idle.interval.ms`` (KIP-835). The other nodes see that they are up to date."""
    async with running_nodes(current_simulation(), metadata_max_idle_interval_ms=2_000) as cluster:
        await create(cluster, (1, 2, 3))
        await trio.sleep(5)  # all is quiet
        active = await cluster.wait_active()
        before = len(no_op_times(active))
        await trio.sleep(60)
        times = no_op_times(active)[before:]
        assert 29 <= len(times) <= 31
        assert all(2_000 <= later - earlier <= 2_100 for earlier, later in pairwise(times))
        await trio.sleep(0.5)
        for node in cluster.nodes:
            assert no_op_times(node)[before:] == times


@simulated
async def test_controller_can_be_configured_to_append_no_idle_records() -> None:
    async with running_nodes(current_simulation(), metadata_max_idle_interval_ms=0) as cluster:
        await cluster.wait_unfenced()
        await trio.sleep(30)
        assert not no_op_times(await cluster.wait_active())
