"""Brokers and clusters of tests: the operations of a test, and the cleanup afterwards."""

from __future__ import annotations

import gc
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest
import trio

import triokafka
from tests.support.waiting import eventually
from triokafka import errors
from triokafka.broker_stub.faults.names import UnknownNameError
from triokafka.broker_stub.log.clean_shutdown import CLEAN_SHUTDOWN_FILE
from triokafka.protocol.api.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from triokafka.testing import RunningBroker, run_simulation, running_broker, running_cluster
from triokafka.testing import blocking as blocking_twins
from triokafka.testing.simulation_run import Simulation


async def produce(servers: str, topic: str, *values: bytes) -> list[int]:
    """The offsets."""
    async with triokafka.Producer(bootstrap_servers=servers, linger_ms=0, retry_backoff_ms=10) as producer:
        return [(await (await producer.send(topic, value, partition=0))).offset for value in values]


async def read(servers: str, topic: str, count: int) -> list[bytes | None]:
    """The values of the first records."""
    async with triokafka.Consumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        found: list[bytes | None] = []
        async for record in consumer:
            found.append(record.value)
            if len(found) == count:
                break
        return found


# One broker


@pytest.mark.parametrize("clean", [True, False])
async def test_a_broker_returns_on_its_port_with_its_records(clean: bool) -> None:
    async with running_broker() as broker:
        servers = broker.bootstrap_servers
        await produce(servers, "t", b"1", b"2")
        await broker.stop(clean=clean)
        assert broker.world.storage.exists(f"/data/{CLEAN_SHUTDOWN_FILE}") is clean
        await broker.start()
        assert broker.bootstrap_servers == servers
        assert await produce(servers, "t", b"3") == [2]
        assert await read(servers, "t", 3) == [b"1", b"2", b"3"]


async def test_a_broker_that_has_failed_does_not_run_and_starts_again_like_one_that_was_killed() -> None:
    async with running_broker() as broker:
        servers = broker.bootstrap_servers
        await produce(servers, "t", b"1")

        async def fail() -> None:
            raise ZeroDivisionError

        await broker.broker.tasks._guard(fail)
        assert not broker.is_running
        assert isinstance(broker.failure, ZeroDivisionError)
        await broker.start()
        assert broker.is_running
        assert broker.failure is None
        assert await produce(servers, "t", b"2") == [1]
        assert await read(servers, "t", 2) == [b"1", b"2"]


async def test_stopped_broker_refuses_connections_and_keeps_its_port() -> None:
    async with running_broker() as broker:
        host, port = broker.bootstrap_servers.split(":")
        await broker.stop()
        assert not broker.is_running
        for _ in range(3):
            with pytest.raises(OSError):
                await trio.open_tcp_stream(host, int(port))
        with socket.socket() as other, pytest.raises(OSError):
            other.bind((host, int(port)))
        with pytest.raises(errors.IllegalStateError, match="stopped"):
            broker.image  # noqa: B018
        await broker.stop()
        await broker.start()
        await broker.start()
        assert await produce(broker.bootstrap_servers, "t", b"1") == [0]
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((host, int(port)))


async def test_frozen_broker_does_not_answer_until_it_thaws() -> None:
    async with running_broker() as broker:
        await produce(broker.bootstrap_servers, "t", b"1")
        answered = trio.Event()
        async with trio.open_nursery() as nursery:
            with broker.frozen():

                async def late() -> None:
                    assert await produce(broker.bootstrap_servers, "t", b"2") == [1]
                    answered.set()

                nursery.start_soon(late)
                await trio.testing.wait_all_tasks_blocked(0.05)
                assert not answered.is_set()
            await answered.wait()


async def test_black_hole_accepts_connections_and_does_not_answer_until_it_is_healed() -> None:
    async with running_broker() as broker, trio.open_nursery() as nursery:
        produced: list[int] = []

        async def send() -> None:
            produced.extend(await produce(broker.bootstrap_servers, "t", b"1"))

        await produce(broker.bootstrap_servers, "t", b"0")
        broker.black_hole()
        nursery.start_soon(send)
        with trio.fail_after(10):
            while not broker.world._streams:  # the client's new connection
                await trio.sleep(0.01)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert not produced
        broker.heal()
        with trio.fail_after(10):
            while not produced:
                await trio.sleep(0.01)
        assert produced == [1]


async def test_half_open_connections_are_replaced_by_the_client() -> None:
    async with running_broker() as broker:
        options: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers, "connections_max_silence_ms": 200}
        async with triokafka.Producer(**options, linger_ms=0) as producer:
            assert (await (await producer.send("t", b"0"))).offset == 0
            broker.half_open()
            with trio.fail_after(10):
                assert (await (await producer.send("t", b"1"))).offset == 1


async def test_dripping_connection_of_a_broker_is_slow() -> None:
    async with (
        running_broker() as broker,
        triokafka.Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0) as producer,
    ):
        await (await producer.send("t", b"0"))
        broker.drip(1_000)
        began = trio.current_time()
        for _ in range(2):  # the request that the broker waits for arrives at full speed
            await (await producer.send("t", bytes(1_200)))
        assert trio.current_time() - began >= 0.5


def test_network_faults_of_a_blocking_broker_end_with_reset() -> None:
    with blocking_twins.running_broker() as broker:
        broker.black_hole()
        broker.reset()
        with socket.create_connection(tuple(broker.bootstrap_servers.split(":")), timeout=10):  # type: ignore[arg-type]
            broker.half_open()
            broker.drip(100)
        broker.create_topic("t")
        assert trio.run(produce, broker.bootstrap_servers, "t", b"1") == [0]


async def test_a_full_disk_refuses_records_until_there_is_room() -> None:
    async with running_broker() as broker:
        servers = broker.bootstrap_servers
        await produce(servers, "t", b"1")
        broker.fill_disk()
        async with triokafka.Producer(
            bootstrap_servers=servers, linger_ms=0, retries=0, enable_idempotence=False
        ) as producer:
            with pytest.raises(errors.KafkaStorageError):
                await (await producer.send("t", b"2"))
        broker.free_disk()
        assert await produce(servers, "t", b"3") == [1]


async def test_a_full_disk_refuses_topics_and_positions_and_they_continue_when_there_is_room() -> None:
    async with running_broker() as broker:
        servers = broker.bootstrap_servers
        await produce(servers, "t", b"1")
        partition = triokafka.TopicPartition("t", 0)
        async with triokafka.Consumer(
            bootstrap_servers=servers, group_id="g", enable_auto_commit=False, retry_backoff_ms=10
        ) as consumer:
            consumer.assign([partition])
            await consumer.commit({partition: triokafka.OffsetAndMetadata(1)})
            broker.fill_disk()
            with pytest.raises(errors.KafkaStorageError):
                await broker.create_topic("more")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(consumer.commit, {partition: triokafka.OffsetAndMetadata(2)})
                await trio.testing.wait_all_tasks_blocked(0.02)
                broker.free_disk()
            committed = await consumer.committed(partition)
            assert committed is not None and committed.offset == 2
        await broker.create_topic("more")
        await broker.restart()
        assert sorted(broker.image.topics) == ["__consumer_offsets", "more", "t"]


async def test_a_clock_put_forward_ends_sessions_and_requests_that_wait() -> None:
    async with running_broker() as broker:
        servers = broker.bootstrap_servers
        await broker.create_topic("t")
        async with triokafka.Consumer(
            "t", bootstrap_servers=servers, group_id="g", client_id="mine", fetch_max_wait_ms=600_000
        ) as consumer:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(consumer.poll, timeout_ms=60_000))
                await eventually(consumer.assignment)  # a joining member has no session timeout yet
                (before,) = broker.members("g")
                broker.advance_clock(46_000)
                await eventually(lambda: {member.member_id for member in broker.members("g")} - {before.member_id})
                nursery.cancel_scope.cancel()
            (after,) = broker.members("g")
            assert (before.client_id, after.client_id) == ("mine", "mine")


async def test_old_segments_go_when_the_clock_is_put_forward() -> None:
    async with running_broker(log_initial_task_delay_ms=600_000) as broker:
        await broker.create_topic("t", partitions=1, configs={"retention.ms": "1000", "segment.ms": "1000"})
        await produce(broker.bootstrap_servers, "t", b"1")
        broker.advance_clock(3_600_000)
        await eventually(lambda: broker.broker.replicas.partition(("t", 0)).log.log_start_offset)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_member_that_is_expired_is_gone_at_once_and_joins_again(protocol: str) -> None:
    options: dict[str, Any] = {
        "group_consumer_min_heartbeat_interval_ms": 50,
        "group_consumer_heartbeat_interval_ms": 50,
    }
    own: dict[str, Any] = {"heartbeat_interval_ms": 50} if protocol == "classic" else {}
    async with running_broker(**options) as broker:
        await broker.create_topic("t")
        async with (
            triokafka.Consumer(
                "t", bootstrap_servers=broker.bootstrap_servers, group_id="g", group_protocol=protocol, **own
            ) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(partial(consumer.poll, timeout_ms=60_000))
            await eventually(consumer.assignment)
            (before,) = broker.members("g")
            assert broker.expire_member("g", before.client_id) == before.member_id
            assert broker.members("g") == []
            await eventually(lambda: broker.members("g"))
            # Under the consumer protocol a member has one id for its life.
            assert (broker.members("g")[0].member_id == before.member_id) is (protocol == "consumer")
            with pytest.raises(errors.UnknownMemberIdError, match="does not have one member 'nobody', but"):
                broker.expire_member("g", "nobody")
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("arm", "said"),
    [
        (
            lambda broker: broker.fail_next("Produec", "NOT_COORDINATOR"),
            "there is no API 'Produec'; did you mean 'Produce'",
        ),
        (
            lambda broker: broker.fail_next("Fetch", "NOT_CORDINATOR"),
            "'NOT_CORDINATOR'; did you mean 'NOT_COORDINATOR'",
        ),
        (lambda broker: broker.fail_next("Fetch", 4711), "no error with the code 4711"),
    ],
)
async def test_unknown_names_are_refused_with_the_nearest_known(
    arm: Callable[[RunningBroker], object], said: str
) -> None:
    async with running_broker() as broker:
        with pytest.raises(UnknownNameError, match=said):
            arm(broker)


async def test_reset_ends_all_faults() -> None:
    async with running_broker() as broker:
        broker.fail_next("Metadata", "LEADER_NOT_AVAILABLE", times=-1)
        broker.close_on(times=-1)
        broker.fill_disk()
        broker.freeze()
        broker.reset()
        assert await produce(broker.bootstrap_servers, "t", b"1") == [0]


async def test_a_fault_for_no_times_never_happens() -> None:
    async with running_broker() as broker:
        for times in range(3):
            broker.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", times=times)
            assert len(broker.faults.all) == bool(times)
            broker.reset()
        with pytest.raises(errors.ConfigurationError, match="times=-2"):
            broker.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", times=-2)
        with pytest.raises(errors.ConfigurationError, match="delay_ms=-5"):
            broker.delay_requests(delay_ms=-5)


@pytest.mark.parametrize("clean", [True, False])
async def test_a_broker_whose_disk_is_full_stops_and_starts_once_there_is_room(clean: bool) -> None:
    async with running_broker() as broker:
        assert await produce(broker.bootstrap_servers, "t", b"1") == [0]
        broker.fill_disk()
        await broker.stop(clean=clean)
        host, port = broker.bootstrap_servers.split(":")
        with pytest.raises(errors.KafkaStorageError):
            await broker.start()
        with socket.socket() as other, pytest.raises(OSError):
            other.bind((host, int(port)))  # the port is kept even when starting fails
        broker.free_disk()
        await broker.start()
        assert await produce(broker.bootstrap_servers, "t", b"2") == [1]
        broker.fill_disk()  # and the block is left as any other


async def test_a_stop_that_is_cancelled_is_waited_for_by_the_next_start() -> None:
    async with running_broker() as broker:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(broker.stop)
                while broker.is_running:
                    await trio.lowlevel.checkpoint()
                scope.cancel()
        await broker.start()
        assert await produce(broker.bootstrap_servers, "t", b"1") == [0]


@pytest.mark.parametrize("block", [running_broker, running_cluster])
async def test_clients_in_a_body_that_is_cancelled_end_with_a_broker(block: Callable[[], Any]) -> None:
    with trio.CancelScope() as scope:
        async with block() as target:
            await target.create_topic("t", partitions=1)
            options: dict[str, Any] = {"bootstrap_servers": target.bootstrap_servers, "close_stall_timeout_ms": 30_000}
            async with triokafka.Producer(**options, linger_ms=1_000) as producer:
                delivery = await producer.send("t", b"1")
                scope.cancel()
                await trio.sleep_forever()
    assert (await delivery).offset == 0


# A cluster


@pytest.mark.parametrize("clean", [True, False])
def test_broker_that_stops_with_a_full_disk_does_not_affect_others_and_restarts_soon(clean: bool) -> None:
    async def goes(world: Simulation) -> None:
        async with running_cluster(nodes=2, world=world.host("cluster").world) as cluster:
            await cluster.create_topic("t", partitions=1)
            cluster.fill_disk()
            await cluster.stop(2, clean=clean)
            cluster.free_disk()
            began = trio.current_time()
            await cluster.start_broker(2)
            assert trio.current_time() - began < 1, "it has waited for the end of its last session"
            assert cluster.leader("t") in (1, 2)

    run_simulation(goes, 1)


async def test_brokers_of_a_cluster_that_is_cancelled_close_their_logs_cleanly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with trio.CancelScope() as scope:
        async with running_cluster(nodes=3) as cluster:
            await produce(cluster.bootstrap_servers, "t", b"1")
            storages = {broker.node_id: broker.world.storage for broker in cluster.brokers}
            scope.cancel()
            await trio.sleep_forever()
    for node_id in (1, 2, 3):
        assert storages[node_id].exists(f"/data/broker-{node_id}/{CLEAN_SHUTDOWN_FILE}")
    assert "did not confirm the shutdown" not in caplog.text


async def test_the_clock_of_one_broker_is_everybodys() -> None:
    async with running_cluster(nodes=2) as cluster:
        await cluster.create_topic("t", partitions=1)
        await produce(cluster.bootstrap_servers, "t", b"1")
        async with triokafka.Consumer(
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            heartbeat_interval_ms=30_000,
            session_timeout_ms=45_000,
        ) as consumer:
            async for _ in consumer:
                break
            assert len(cluster.members("g")) == 1
            cluster.broker(3 - cluster.coordinator("g")).advance_clock(60_000)
            await trio.testing.wait_all_tasks_blocked()
            assert cluster.members("g") == []


async def test_every_broker_describes_the_cluster_in_the_same_way() -> None:
    async with running_cluster(nodes=3) as cluster:
        assert [broker.node_id for broker in cluster.brokers] == [1, 2, 3]
        for broker in cluster.brokers:
            async with triokafka.AdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
                description = await admin.describe_cluster()
            found = {node.node_id: f"{node.host}:{node.port}" for node in description.nodes}
            assert found == {one.node_id: one.bootstrap_servers for one in cluster.brokers}


async def test_records_and_sequences_survive_leaders_that_move() -> None:
    async with running_cluster(nodes=3) as cluster:
        await cluster.create_topic("t", partitions=1)
        async with triokafka.Producer(
            bootstrap_servers=cluster.bootstrap_servers, linger_ms=0, retry_backoff_ms=10
        ) as producer:
            for number in range(30):
                delivery = await producer.send("t", b"%d" % number, partition=0)
                if number % 3 == 0:
                    before = cluster.leader("t")
                    assert await cluster.move_leader("t") == cluster.leader("t") != before
                await delivery
        assert cluster.leader_epoch("t") == 10
        assert await read(cluster.bootstrap_servers, "t", 30) == [b"%d" % number for number in range(30)]


@pytest.mark.parametrize("clean", [True, False])
async def test_other_replicas_lead_the_partitions_of_a_stopped_broker(clean: bool) -> None:
    async with running_cluster(nodes=3) as cluster:
        await cluster.create_topic("kept", partitions=1)
        await cluster.create_topic("lost", partitions=3, replication_factor=1)
        assert await produce(cluster.bootstrap_servers, "kept", b"1") == [0]
        gone = cluster.leader("kept")
        await cluster.stop(gone, clean=clean)
        assert cluster.leader("kept") not in (gone, -1)
        assert [cluster.leader("lost", number) for number in range(3)].count(-1) == 1
        assert await produce(cluster.bootstrap_servers, "kept", b"2") == [1]
        await cluster.start_broker(gone)
        assert sorted(cluster.leader("lost", number) for number in range(3)) == [1, 2, 3]


async def test_a_broker_that_is_stopped_with_move_leaves_nothing_without_a_leader() -> None:
    async with running_cluster(nodes=2) as cluster:
        await cluster.create_topic("t", partitions=2, replication_factor=1)
        number = next(number for number in range(2) if cluster.leader("t", number) == 1)
        await cluster.stop(1, move=True)
        assert cluster.leader("t", number) == 2


async def test_a_broker_that_is_back_is_in_sync_again_so_that_all_may_stop_one_after_the_other() -> None:
    async with running_cluster(nodes=3) as cluster:
        await cluster.create_topic("t", partitions=1)
        for number, node in enumerate((1, 2, 3, 1, 2, 3)):
            await cluster.restart(node, clean=number % 2 == 0)
            assert await produce(cluster.bootstrap_servers, "t", b"%d" % number) == [number]
            while True:
                state = cluster.image.partition("t", 0)
                assert state is not None
                if set(state.isr) == {1, 2, 3}:
                    break
                await trio.sleep(0.001)


async def test_partitions_are_reassigned_at_once_with_their_records() -> None:
    async with running_cluster(nodes=3) as cluster:
        await cluster.create_topic("t", partitions=1, replication_factor=1)
        assert await produce(cluster.bootstrap_servers, "t", b"1") == [0]
        old = cluster.leader("t")
        new = [node for node in (1, 2, 3) if node != old]
        async with triokafka.AdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            await admin.alter_partition_reassignments({triokafka.TopicPartition("t", 0): new})
            with trio.fail_after(60):
                while await admin.list_partition_reassignments():
                    await trio.sleep(0.001)
        state = cluster.image.partition("t", 0)
        assert state is not None and list(state.replicas) == new and state.leader in new
        assert await produce(cluster.bootstrap_servers, "t", b"2") == [1]


async def test_configuration_of_each_broker_is_requested_from_that_broker() -> None:
    async with (
        running_cluster(nodes=2) as cluster,
        triokafka.AdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        second = triokafka.ConfigResource.broker(2)
        await admin.incremental_alter_configs({second: {"max.connections": "77"}})
        configs = (await admin.describe_configs([second]))[second]
        assert configs["node.id"].value == "2" and configs["max.connections"].value == "77"
        first, other = (broker.broker.config for broker in cluster.brokers)
        assert (first.max_connections, other.max_connections) == (2_147_483_647, 77)
        assert (first.node_id, other.node_id) == (1, 2)


async def test_a_group_and_its_positions_survive_a_coordinator_that_moves() -> None:
    async with running_cluster(nodes=3) as cluster:
        await cluster.create_topic("t", partitions=1)
        await produce(cluster.bootstrap_servers, "t", b"1", b"2")
        async with triokafka.Consumer(
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            polled = await consumer.poll(timeout_ms=10_000, max_records=1)
            assert [record.value for records in polled.values() for record in records] == [b"1"]
            (member,) = cluster.members("g")
            before = cluster.coordinator("g")
            assert await cluster.move_coordinator("g") == cluster.coordinator("g") != before
            await consumer.commit()
            assert cluster.members("g") == [member]
            committed = await consumer.committed(triokafka.TopicPartition("t", 0))
            assert committed is not None and committed.offset == 1


async def test_a_topic_that_is_recreated_after_its_leader_moved_is_empty() -> None:
    async with running_cluster(nodes=3) as cluster:
        for replicas in (1, 3):
            await cluster.create_topic("t", partitions=1, replication_factor=replicas)
            assert await produce(cluster.bootstrap_servers, "t", b"1") == [0]
            await cluster.move_leader("t")
            assert await produce(cluster.bootstrap_servers, "t", b"2") == [1]
            await cluster.delete_topic("t")


async def test_faults_of_the_cluster_hold_at_every_broker_and_those_of_one_there_only() -> None:
    async with running_cluster(nodes=2) as cluster:
        fault = cluster.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
        own = cluster.broker(2).fail_next("Fetch", "KAFKA_STORAGE_ERROR")
        first, second = (broker.broker.faults for broker in cluster.brokers)
        assert first.for_item(0) is second.for_item(0) is fault
        assert (first.for_item(1), second.for_item(1)) == (None, own)
        assert not first.armed and not second.armed


async def test_there_is_no_moving_to_a_broker_that_is_not_there() -> None:
    async with running_cluster(nodes=2) as cluster:
        await cluster.create_topic("t")
        await cluster.stop(2)
        for broker_id in (2, 7):
            with pytest.raises(errors.BrokerNotAvailableError, match=rf"{broker_id} cannot lead t-0; \[1\] are active"):
                await cluster.move_leader("t", to=broker_id)
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            await cluster.move_leader("missing")


def test_a_cluster_runs_in_the_simulated_world() -> None:
    async def moves(world: Simulation) -> str:
        host = world.host("cluster").world
        async with running_cluster(nodes=3, world=host) as cluster:
            await cluster.create_topic("t", partitions=1)
            client = world.host("client").world
            async with triokafka.Producer(
                bootstrap_servers=cluster.bootstrap_servers, world=client, linger_ms=0
            ) as producer:
                for number in range(10):
                    delivery = await producer.send("t", b"%d" % number)
                    await cluster.move_leader("t")
                    assert (await delivery).offset == number
        return world.trace_digest()

    assert run_simulation(moves, 3) == run_simulation(moves, 3) != run_simulation(moves, 4)


# What is left


def open_things() -> tuple[set[str], set[str]]:
    """Open files and connections of this process, and its threads, but for those that Trio keeps for later."""
    gc.collect()
    files = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            files.add(f"{number} {os.readlink(f'/proc/self/fd/{number}')}")
        except OSError:
            continue  # the directory's own
    threads = {thread.name for thread in threading.enumerate() if not thread.name.startswith("Trio ")}
    return {file for file in files if "/proc/" not in file}, threads


class _OurError(Exception):
    pass


def use_and_raise(how: str) -> None:
    with pytest.raises(_OurError), blocking_twins.running_cluster(2) as cluster:
        cluster.create_topic("t")
        cluster.stop(2, clean=how != "killed")
        if how == "frozen":
            cluster.broker(1).freeze()
        with socket.create_connection(cluster.broker(1).bootstrap_servers.split(":")):  # type: ignore[arg-type]
            raise _OurError


def use_and_cancel(how: str) -> None:
    async def main() -> None:
        with trio.CancelScope() as scope:
            async with running_broker() as broker, trio.open_nursery() as nursery:
                await produce(broker.bootstrap_servers, "t", b"1")
                if how == "stopped":
                    await broker.stop()
                nursery.start_soon(trio.sleep_forever)
                scope.cancel()
                await trio.sleep_forever()

    trio.run(main)


@pytest.mark.parametrize(
    ("use", "how"),
    [
        (use_and_raise, "stopped"),
        (use_and_raise, "killed"),
        (use_and_raise, "frozen"),
        (use_and_cancel, "running"),
        (use_and_cancel, "stopped"),
    ],
)
def test_nothing_is_left_behind(use: Callable[[str], None], how: str) -> None:
    use(how)  # imports and caches are done once
    before = open_things()
    use(how)
    assert open_things() == before


async def test_the_bodys_exception_leaves_as_itself() -> None:
    for block in (running_broker, running_cluster):
        with pytest.raises(_OurError):
            async with block():
                raise _OurError


def test_a_broker_that_cannot_start_says_why_and_leaves_nothing() -> None:
    def fails() -> None:
        for block in (blocking_twins.running_broker, blocking_twins.running_cluster):
            with pytest.raises(errors.ConfigurationError, match="did you mean num_partitions"), block(num_partition=3):
                raise AssertionError("it has started")
            with socket.socket() as taken:
                taken.bind(("127.0.0.1", 0))
                taken.listen()
                address = f"PLAINTEXT://127.0.0.1:{taken.getsockname()[1]}"
                with pytest.raises(errors.ConfigurationError, match="in use"), block(listeners=(address,)):
                    raise AssertionError("it has started")

    fails()
    before = open_things()
    fails()
    assert open_things() == before


def test_calls_from_any_thread_and_after_the_end() -> None:
    with blocking_twins.running_broker() as broker:
        threads = [threading.Thread(target=broker.create_topic, args=(f"t{number}",)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with pytest.raises(errors.TopicAlreadyExistsError):
            broker.create_topic("t3")
    with pytest.raises(RuntimeError, match="left"):
        broker.create_topic("t9")


def test_a_start_that_is_interrupted_ends_without_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Future, "result", interrupted)

    def start() -> None:
        with pytest.raises(KeyboardInterrupt), blocking_twins.running_broker():
            raise AssertionError("it has started")

    starting = threading.Thread(target=start)
    starting.start()
    starting.join(10)
    assert not starting.is_alive()


def test_replicas_are_in_sync_again_though_the_change_failed_at_first() -> None:
    """This is like a full disk, after which nothing else may change for long."""

    async def world(simulation: Simulation) -> None:
        async with running_cluster(2, world=simulation.host("cluster").world) as cluster:
            await cluster.create_topic("t", partitions=1)
            sender = cluster.broker(cluster.leader("t")).broker.gateway
            alter_partition, failed = sender.alter_partition, 0

            async def fail_twice(request: AlterPartitionRequest) -> AlterPartitionResponse:
                nonlocal failed
                if failed < 2:
                    failed += 1
                    raise errors.KafkaStorageError("no room")
                return await alter_partition(request)

            sender.alter_partition = fail_twice  # type: ignore[method-assign]
            await cluster.restart(3 - cluster.leader("t"))
            with trio.fail_after(30):
                while len(cluster.image.partition("t", 0).isr) < 2:  # type: ignore[union-attr]
                    await trio.sleep(0.1)
            assert failed == 2

    run_simulation(world, 1)
