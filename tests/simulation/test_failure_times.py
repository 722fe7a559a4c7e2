"""How soon a cluster reacts to failures of a node, as the table in ``docs/cluster.md`` says. In virtual time."""

from __future__ import annotations

import errno

import pytest
import trio

from tests.support.simulated import current_simulation, simulated
from tests.support.simulated_cluster import DATA, SESSION_SECONDS, SimulatedCluster, SimulatedNode, running_nodes
from triokafka import NewTopic, Producer
from triokafka.broker_stub.metadata import PartitionImage
from triokafka.world.memory import DiskFault

HEARTBEAT_SECONDS, LAG_SECONDS = 0.5, 4.0
DIRECTORIES = (DATA, "/more")


async def produce(cluster: SimulatedCluster, count: int, partition: int = 0) -> None:
    """Send records that all in-sync replicas acknowledge."""
    async with Producer(bootstrap_servers=cluster.bootstrap, world=cluster.client_world(), linger_ms=0) as producer:
        for number in range(count):
            await (await producer.send("t", b"%d" % number, partition=partition))


async def create(cluster: SimulatedCluster) -> list[SimulatedNode]:
    """Create a topic of three partitions with three replicas each; return the active controller and the others."""
    await cluster.wait_unfenced()
    replicas = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)}
    async with cluster.admin() as admin:
        await admin.create_topics([NewTopic("t", assignments=replicas)])
    await cluster.wait_in_sync({"t": 3})
    for partition in replicas:
        await produce(cluster, 1, partition)
    active = await cluster.wait_active()
    return [active, *(node for node in cluster.nodes if node is not active)]


def led_by(node: SimulatedNode) -> int:
    """The partition that prefers a node."""
    return node.number - 1


def state(node: SimulatedNode, partition: int) -> PartitionImage:
    found = node.image.partition("t", partition)
    assert found is not None
    return found


@simulated
async def test_followers_that_cannot_reach_their_leader_leave_the_in_sync_set_after_1_to_1_5_lag_times() -> None:
    """The two brokers reach the active controller. Only their common partitions notice."""
    async with running_nodes(
        current_simulation(), replica_lag_time_max_ms=int(LAG_SECONDS * 1_000), min_insync_replicas=2
    ) as cluster:
        active, one, other = await create(cluster)
        before = [state(active, partition).leader for partition in range(3)]
        cluster.simulation.network.partition(one.name, other.name)
        began = trio.current_time()
        await produce(cluster, 1, led_by(active))
        assert trio.current_time() - began < 1, "both follow the third broker"
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                for node in (one, other):
                    nursery.start_soon(produce, cluster, 1, led_by(node))
        assert LAG_SECONDS - 1 <= trio.current_time() - began <= 1.5 * LAG_SECONDS + 1
        for leader, follower in ((one, other), (other, one)):
            assert follower.number not in state(leader, led_by(leader)).isr
        assert [state(active, partition).leader for partition in range(3)] == before
        assert state(active, led_by(active)).isr == state(active, led_by(active)).replicas
        cluster.simulation.network.heal()
        await cluster.wait_in_sync({"t": 3}, within=2)


@simulated
async def test_other_replicas_lead_the_partitions_of_a_failed_directory_after_a_heartbeat() -> None:
    async with running_nodes(current_simulation(), log_dirs=DIRECTORIES) as cluster:
        active, failing, _ = await create(cluster)
        disk = failing.host.disk
        (failed,) = [path for path in DIRECTORIES if disk.is_dir(f"{path}/t-{led_by(failing)}")]
        disk.inject(DiskFault("write", f"{failed}/t-*", errno.EIO))
        began = trio.current_time()
        with trio.fail_after(20):
            await produce(cluster, 1, led_by(failing))
        assert state(active, led_by(failing)).leader != failing.number
        assert trio.current_time() - began <= HEARTBEAT_SECONDS + 1
        assert active.image.brokers[failing.number].active


@pytest.mark.parametrize("power_cut", [False, True])
def test_killed_node_is_fenced_when_its_session_ends_and_fetches_what_it_lacks(power_cut: bool) -> None:
    @simulated
    async def run() -> None:
        async with running_nodes(current_simulation()) as cluster:
            active, lost, _ = await create(cluster)
            await produce(cluster, 20, led_by(lost))
            await lost.kill(power_cut=power_cut)
            began = trio.current_time()
            await produce(cluster, 1, led_by(lost))
            assert SESSION_SECONDS - 1 <= trio.current_time() - began <= SESSION_SECONDS + 2
            lost.start()
            await lost.wait_started()
            await cluster.wait_in_sync({"t": 3}, within=5)
            assert state(active, led_by(lost)).leader != lost.number
            await cluster.wait_replicas_equal({"t": 3})

    run()
