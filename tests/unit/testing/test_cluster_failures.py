"""A test's cluster whose nodes are killed, paused and cut off from each other, in virtual time."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable

import pytest
import trio

import triokafka
from tests.support.waiting import eventually
from triokafka import errors
from triokafka.testing import RunningCluster, Simulation, run_simulation, running_cluster
from triokafka.testing import blocking as blocking_twins

Test = Callable[[Simulation, RunningCluster], Awaitable[None]]


async def produce(simulation: Simulation, cluster: RunningCluster, *values: bytes) -> list[int]:
    async with triokafka.Producer(
        world=simulation.host("client").world, bootstrap_servers=cluster.bootstrap_servers, linger_ms=0
    ) as producer:
        return [(await (await producer.send("t", value, partition=0))).offset for value in values]


def in_both_worlds(test: Test) -> Callable[..., None]:
    """Run a test with all nodes in one world, and with a host for each node."""

    @pytest.mark.parametrize("hosts", [False, True], ids=["one world", "a host each"])
    @functools.wraps(test)
    def run(hosts: bool) -> None:
        async def life(simulation: Simulation) -> None:
            world = None if hosts else simulation.host("cluster").world
            async with running_cluster(world=world, simulation=simulation if hosts else None) as cluster:
                await test(simulation, cluster)

        run_simulation(life, 1)

    del run.__wrapped__
    return run


def others(cluster: RunningCluster, node_id: int) -> list[int]:
    return [broker.node_id for broker in cluster.brokers if broker.node_id != node_id]


@in_both_worlds
async def test_every_node_has_its_own_metadata_and_one_is_the_active_controller(
    simulation: Simulation, cluster: RunningCluster
) -> None:
    await cluster.create_topic("t", partitions=3)
    assert len({id(broker.node.metadata) for broker in cluster.brokers}) == 3
    assert [broker.is_active_controller for broker in cluster.brokers].count(True) == 1
    for broker in cluster.brokers:
        assert sorted(broker.node.metadata.raft.voters.ids) == [1, 2, 3]
        assert broker.image.topics["t"].topic_id == cluster.image.topics["t"].topic_id
        assert broker.world.storage.exists(f"/data/broker-{broker.node_id}/__cluster_metadata-0/quorum-state")


@in_both_worlds
async def test_killed_leader_and_controller_are_replaced_after_their_timeouts(
    simulation: Simulation, cluster: RunningCluster
) -> None:
    await cluster.create_topic("t", partitions=1)
    lost = cluster.active_controller
    await cluster.move_leader("t", to=lost) if cluster.leader("t") != lost else None
    assert await produce(simulation, cluster, b"1") == [0]
    began = trio.current_time()
    await cluster.kill(lost)
    assert cluster.leader("t") == lost, "the leader changed before the session of the dead node ended"
    await eventually(lambda: cluster.active_controller not in (-1, lost))
    assert 1 < trio.current_time() - began < 8
    await eventually(lambda: cluster.leader("t") not in (-1, lost))
    assert 8 < trio.current_time() - began < 20
    assert await produce(simulation, cluster, b"2") == [1]
    began = trio.current_time()
    await cluster.start(lost)
    assert trio.current_time() - began < 2, "it has not waited for the end of its last session"
    await eventually(lambda: len(cluster.image.partition("t", 0).isr) == 3)  # type: ignore[union-attr]


@in_both_worlds
async def test_others_notice_a_stop_without_a_word_at_once(simulation: Simulation, cluster: RunningCluster) -> None:
    await cluster.create_topic("t", partitions=3)
    for _ in range(3):
        lost = cluster.active_controller
        began = trio.current_time()
        await cluster.stop(lost, clean=False)
        assert trio.current_time() - began < 1
        assert cluster.active_controller in others(cluster, lost)
        assert all(cluster.leader("t", number) in others(cluster, lost) for number in range(3))
        await cluster.start(lost)
        await eventually(lambda: all(len(state.isr) == 3 for _, state in cluster.image.partitions()))


@in_both_worlds
async def test_paused_node_is_replaced_and_returns(simulation: Simulation, cluster: RunningCluster) -> None:
    await cluster.create_topic("t", partitions=1)
    paused = cluster.active_controller
    await cluster.move_leader("t", to=paused) if cluster.leader("t") != paused else None
    cluster.pause(paused)
    await eventually(lambda: cluster.active_controller in others(cluster, paused))
    await eventually(lambda: cluster.leader("t") in others(cluster, paused))
    assert await produce(simulation, cluster, b"1") == [0]
    cluster.resume(paused)
    await eventually(lambda: cluster.broker(paused).image.offset == cluster.image.offset)
    await eventually(lambda: len(cluster.image.partition("t", 0).isr) == 3)  # type: ignore[union-attr]
    assert not cluster.broker(paused).is_active_controller


@in_both_worlds
async def test_partition_of_the_network_leaves_the_majority_at_work(
    simulation: Simulation, cluster: RunningCluster
) -> None:
    await cluster.create_topic("t", partitions=1)
    alone = cluster.active_controller
    await cluster.move_leader("t", to=alone) if cluster.leader("t") != alone else None
    cluster.partition_network([[alone], others(cluster, alone)])
    await eventually(lambda: cluster.active_controller in others(cluster, alone))
    await eventually(lambda: cluster.leader("t") in others(cluster, alone))
    await cluster.broker(others(cluster, alone)[0]).create_topic("more", partitions=1, replication_factor=1)
    assert "more" not in cluster.broker(alone).image.topics
    assert await produce(simulation, cluster, b"1") == [0]
    cluster.heal()
    await eventually(lambda: "more" in cluster.broker(alone).image.topics)
    await eventually(lambda: len(cluster.image.partition("t", 0).isr) == 3)  # type: ignore[union-attr]


@in_both_worlds
async def test_nodes_start_one_by_one_after_all_were_killed(simulation: Simulation, cluster: RunningCluster) -> None:
    await cluster.create_topic("t", partitions=1)
    assert await produce(simulation, cluster, b"1") == [0]
    for node_id in (1, 2, 3):
        await cluster.kill(node_id)
    with pytest.raises(errors.IllegalStateError, match="every broker of the cluster is stopped"):
        cluster.image  # noqa: B018
    await cluster.start(1)
    assert not cluster.broker(1).is_running, "it waits for a majority"
    with trio.fail_after(5):  # less than a session: no member waits for the end of the old one
        await cluster.start(2)
        await cluster.start(3)
    await eventually(lambda: all(broker.is_running for broker in cluster.brokers))
    assert await produce(simulation, cluster, b"2") == [1]


@in_both_worlds
async def test_clock_that_jumps_changes_neither_leaders_nor_controller(
    simulation: Simulation, cluster: RunningCluster
) -> None:
    await cluster.create_topic("t", partitions=3)
    before = cluster.active_controller, [cluster.leader_epoch("t", number) for number in range(3)]
    cluster.advance_clock(600_000)
    await trio.sleep(15)
    assert (cluster.active_controller, [cluster.leader_epoch("t", number) for number in range(3)]) == before
    assert await produce(simulation, cluster, b"1") == [0]


@in_both_worlds
async def test_misuse_raises_an_error_with_a_remedy(simulation: Simulation, cluster: RunningCluster) -> None:
    for call in (cluster.pause, cluster.resume):
        with pytest.raises(errors.BrokerNotAvailableError, match=r"the cluster has the brokers \[1, 2, 3\], not 7"):
            call(7)
    for started in (cluster.kill, cluster.start, cluster.stop, cluster.restart):
        with pytest.raises(errors.BrokerNotAvailableError, match=r"the cluster has the brokers \[1, 2, 3\], not 7"):
            await started(7)
    with pytest.raises(errors.BrokerNotAvailableError, match="not 9"):
        cluster.partition_network([[1], [9]])
    with pytest.raises(ValueError, match="node 2 is in two groups"):
        cluster.partition_network([[1, 2], [2, 3]])
    await cluster.kill(3)
    with pytest.raises(errors.IllegalStateError, match=r"kill: broker 3 is not running; start\(\) it first"):
        await cluster.kill(3)
    for name in ("pause", "resume"):
        with pytest.raises(errors.IllegalStateError, match=rf"{name}: broker 3 is not running; start\(3\) it first"):
            getattr(cluster, name)(3)


@pytest.mark.parametrize(
    ("size", "words"),
    [
        ({"nodes": 0}, "at least one node"),
        ({"nodes": 2, "controllers": 3}, "of 2 nodes 1 to 2 can be controllers, not 3"),
        ({"controllers": 0}, "not 0"),
    ],
)
def test_cluster_of_an_impossible_size_is_refused(size: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words), blocking_twins.running_cluster(**size):
        raise AssertionError("it has started")


@pytest.mark.parametrize(("nodes", "controllers", "voters"), [(1, None, 1), (2, None, 1), (4, None, 3), (3, 1, 1)])
def test_number_of_controllers(nodes: int, controllers: int | None, voters: int) -> None:
    async def life(simulation: Simulation) -> None:
        async with running_cluster(nodes, controllers=controllers, simulation=simulation) as cluster:
            await cluster.create_topic("t", partitions=2)
            assert [broker.node.config.is_controller for broker in cluster.brokers].count(True) == voters
            assert cluster.active_controller in range(1, voters + 1)

    run_simulation(life, 1)


def test_power_cut_of_a_host_loses_nothing_that_was_acknowledged() -> None:
    async def life(simulation: Simulation) -> None:
        async with running_cluster(simulation=simulation, min_insync_replicas=2) as cluster:
            await cluster.create_topic("t", partitions=1)
            assert await produce(simulation, cluster, b"1", b"2") == [0, 1]
            lost = cluster.leader("t")
            await cluster.kill(lost, power_cut=True)
            await eventually(lambda: cluster.leader("t") in others(cluster, lost))
            await cluster.start(lost)
            await eventually(lambda: len(cluster.image.partition("t", 0).isr) == 3)  # type: ignore[union-attr]
            assert await produce(simulation, cluster, b"3") == [2]

    run_simulation(life, 1)


def test_start_that_is_cancelled_at_any_time_leaves_nothing() -> None:
    """Virtual time: each run is cancelled a little later, until the start is complete."""

    async def life(simulation: Simulation, delay: float) -> bool:
        with trio.move_on_after(delay) as scope:
            async with running_cluster(world=simulation.host("cluster").world) as cluster:
                await cluster.create_topic("t", partitions=1)
        assert not simulation.network.connections
        return scope.cancelled_caught

    step, count = 0.004, 0
    while run_simulation(lambda simulation: life(simulation, count * step), 1):  # noqa: B023
        count += 1
    assert count > 5


def test_cluster_with_a_host_for_each_node_has_the_same_trace_again() -> None:
    async def life(simulation: Simulation) -> str:
        async with running_cluster(simulation=simulation) as cluster:
            await cluster.create_topic("t", partitions=1)
            await produce(simulation, cluster, b"1")
            await cluster.kill(cluster.leader("t"))
            await trio.sleep(20)
        return simulation.trace_digest()

    assert run_simulation(life, 3) == run_simulation(life, 3) != run_simulation(life, 4)


def test_blocking_twin_has_the_calls() -> None:
    with blocking_twins.running_cluster() as cluster:
        cluster.create_topic("t", partitions=1)
        lost = cluster.active_controller
        cluster.pause(lost)
        cluster.resume(lost)
        cluster.partition_network([[lost]])
        cluster.heal()
        cluster.kill(lost)
        with pytest.raises(errors.IllegalStateError, match="not running"):
            cluster.kill(lost)
        cluster.start(lost)
        cluster.broker(lost).kill()
        cluster.start()
        assert all(broker.is_running for broker in cluster.brokers)
