"""Disks that fail, are full, or are slow, as clients see them."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from tests.unit.broker_stub.api.node import Node, batch, running_node
from triokafka import errors
from triokafka.protocol.api.create_topics import CreatableTopic, CreateTopicsRequest
from triokafka.protocol.api.delete_topics import DeleteTopicsRequest
from triokafka.protocol.api.describe_log_dirs import DescribeLogDirsRequest
from triokafka.protocol.api.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from triokafka.protocol.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from triokafka.protocol.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponsePartition
from triokafka.protocol.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from triokafka.records import decode_records
from triokafka.structs import TopicPartition
from triokafka.world.memory import DiskFault, MemoryStorage
from triokafka.world.system import RealWorld

STORAGE_ERROR = errors.KafkaStorageError.code
TWO = ("/one", "/two")


class DiskWorld(RealWorld):
    """The real world, but for the disk, which can be made to hold its syncs back."""

    def __init__(self) -> None:
        super().__init__()
        self.storage: MemoryStorage = MemoryStorage()
        self.hold: trio.Event | None = None

    async def run_in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        if self.hold is not None:
            await self.hold.wait()
        return await super().run_in_thread(function, *args)


def number_in(node: Node, directory: str) -> int:
    """A partition of ``t`` whose log is in ``directory``."""
    logs = node.broker.logs
    return next(n for n in range(4) if logs.directory_of(TopicPartition("t", n)) == directory)


async def described(node: Node, number: int) -> MetadataResponsePartition:
    response = await node.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
    return next(p for p in response.topics[0].partitions if p.partition_index == number)


async def make_topic(node: Node) -> None:
    """``t``, with a record in each of its four partitions."""
    await node.create("t", 4)
    for number in range(4):
        assert (await node.produce("t", batch(b"a"), partition=number)).error_code == 0


async def test_partitions_on_a_failed_disk_say_so_and_the_others_serve() -> None:
    """Produce, fetch and metadata report it; new topics go to other disks; a restart with the repaired disk ends it."""
    world = DiskWorld()
    async with running_node(world=world, log_dirs=TWO) as node:
        await make_topic(node)
        lost, online = number_in(node, "/two"), number_in(node, "/one")
        take_back = world.storage.inject(DiskFault("write", "/two/*", errno.EIO))
        assert (await node.produce("t", batch(b"b"), partition=lost)).error_code == STORAGE_ERROR
        await trio.testing.wait_all_tasks_blocked()
        assert (await node.produce("t", batch(b"b"), partition=lost)).error_code == STORAGE_ERROR
        assert (await node.produce("t", batch(b"b"), partition=online)).error_code == 0
        partitions = {p.partition_index: p.error_code for p in await node.fetch("t", 0, 0, 0, 0)}
        assert (partitions[lost], partitions[online]) == (STORAGE_ERROR, 0)
        seen = await described(node, lost)
        assert (seen.error_code, seen.offline_replicas) == (errors.LeaderNotAvailableError.code, [node.broker.node_id])
        description = await node.call(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")]), 0)
        leaders = {p.partition_index: p.leader_id for p in description.topics[0].partitions}
        assert (seen.leader_id, leaders[lost], leaders[online]) == (-1, -1, node.broker.node_id)
        assert (await described(node, online)).offline_replicas == []
        await node.create("u", 4)
        assert {node.broker.logs.directory_of(TopicPartition("u", n)) for n in range(4)} == {"/one"}
    take_back()
    async with running_node(world=world, log_dirs=TWO) as node:
        assert (await described(node, lost)).offline_replicas == []
        records = (await node.fetch("t", 0, 0, 0, 0))[lost].records
        assert [record.value for record in decode_records(records or b"")] == [b"a"]


async def test_a_broker_whose_last_disk_fails_stops_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    """While one disk is left, the broker continues. After a repair, a start has the old data."""
    world = DiskWorld()
    async with running_node(world=world, log_dirs=TWO) as node:
        await make_topic(node)
        second, first = number_in(node, "/two"), number_in(node, "/one")
        world.storage.inject(DiskFault("write", "/two/*", errno.EIO))
        assert (await node.produce("t", batch(b"b"), partition=second)).error_code == STORAGE_ERROR
        await trio.testing.wait_all_tasks_blocked()
        assert (await node.produce("t", batch(b"b"), partition=first)).error_code == 0
        assert node.process.failure is None
        world.storage.inject(DiskFault("write", "/one/t-*", errno.EIO))
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError, errors.KafkaError):
            await node.produce("t", batch(b"c"), partition=first)
        with trio.fail_after(5):
            await node.process.wait_stopped()
        assert isinstance(node.process.failure, errors.KafkaStorageError)
        assert "/one is offline" in str(node.process.failure)
        assert "all data directories are offline" in caplog.text
    world.storage.faults.clear()
    async with running_node(world=world, log_dirs=TWO) as node:
        values = [
            [record.value for record in decode_records((await node.fetch("t", 0, 0, 0, 0))[number].records or b"")]
            for number in (second, first)
        ]
        assert values == [[b"a"], [b"a", b"b"]]


async def test_a_broker_starts_without_one_of_its_disks() -> None:
    """The logs of the missing disk are not created on the other one."""
    world = DiskWorld()
    async with running_node(world=world, log_dirs=TWO) as node:
        await node.create("t", 4)
        lost, online = number_in(node, "/two"), number_in(node, "/one")
    world.storage.inject(DiskFault("*", "/two*", errno.EIO))
    async with running_node(world=world, log_dirs=TWO) as node:
        assert (await node.produce("t", batch(b"b"), partition=lost)).error_code == STORAGE_ERROR
        assert (await node.produce("t", batch(b"b"), partition=online)).error_code == 0


@pytest.mark.parametrize("is_new", [True, False])
async def test_a_broker_starts_without_a_disk_that_cannot_be_written_or_read(is_new: bool) -> None:
    """Also where it can be locked: a new one without its `meta.properties`, or that of one that is known. Partitions
    that are there are offline, and it is whole when the disk is back."""
    world = DiskWorld()
    if not is_new:
        async with running_node(world=world, log_dirs=TWO) as node:
            await node.create("t", 4)
            lost = number_in(node, "/two")
    take_back = world.storage.inject(
        DiskFault("write" if is_new else "read", "/two/meta.properties*", errno.EROFS if is_new else errno.EIO)
    )
    async with running_node(world=world, log_dirs=TWO) as node:
        if is_new:
            await node.create("t", 4)
            assert {node.broker.logs.directory_of(TopicPartition("t", n)) for n in range(4)} == {"/one"}
        else:
            assert (await node.produce("t", batch(b"b"), partition=lost)).error_code == STORAGE_ERROR
        assert [*node.broker.logs.offline_directories()] == ["/two"]
    take_back()
    async with running_node(world=world, log_dirs=TWO) as node:
        assert not node.broker.logs.offline_directories()
        if not is_new:
            assert (await node.produce("t", batch(b"b"), partition=lost)).error_code == 0


async def test_a_full_disk_is_an_answer_and_no_more() -> None:
    """Readers continue, and writers, too, as soon as the disk has room."""
    world = DiskWorld()
    async with running_node(world=world) as node:
        await node.create("t")
        assert (await node.produce("t", batch(b"a"))).error_code == 0
        world.storage.capacity = 0
        refused = await node.produce("t", batch(b"b" * 1000))
        assert refused.error_code == STORAGE_ERROR
        assert "space" in (refused.error_message or "")
        (partition,) = await node.fetch("t", 0)
        assert [record.value for record in decode_records(partition.records or b"")] == [b"a"]
        world.storage.capacity = None
        assert (await node.produce("t", batch(b"c"))).base_offset == 1


@pytest.mark.parametrize("acks", [1, -1])
async def test_with_flush_messages_1_an_answer_means_that_the_records_are_on_disk(acks: int) -> None:
    """Until then they are not read, and the broker does other work."""
    world = DiskWorld()
    threads: set[int] = set()
    async with running_node(world=world) as node:
        await node.create("t", flush_messages="1")
        await node.create("u")
        answers: list[int] = []

        async def produce() -> None:
            answers.append((await node.produce("t", batch(b"a"), acks=acks)).base_offset)

        def watch(operation: str, path: str, size: int) -> None:
            if operation == "sync":
                threads.add(threading.get_ident())

        world.storage.before_operation = watch
        world.hold = trio.Event()
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(produce)
            await trio.testing.wait_all_tasks_blocked()
            assert answers == []
            assert (await node.fetch("t", 0))[0].high_watermark == 0
            assert (await node.produce("u", batch(b"x"), acks=1)).error_code == 0
            world.hold.set()
        assert sorted(answers) == [0, 1, 2]
        log = node.broker.logs.get(TopicPartition("t", 0))
        assert log is not None
        assert log.recovery_point == 3
        assert threading.get_ident() not in threads


async def test_failed_flush_fails_the_waiting_produce() -> None:
    world = DiskWorld()
    async with running_node(world=world, log_dirs=TWO) as node:
        await node.create("t", 4, flush_messages="1")
        number = number_in(node, "/two")
        world.storage.inject(DiskFault("sync", "/two/*", errno.EIO))
        assert (await node.produce("t", batch(b"a"), partition=number, acks=1)).error_code == STORAGE_ERROR
        assert (await node.produce("t", batch(b"a"), partition=number_in(node, "/one"), acks=1)).error_code == 0


async def test_a_log_of_no_topic_is_set_aside_at_the_start() -> None:
    """The broker died after the cluster had deleted the topic, and before the log was deleted."""
    world = DiskWorld()
    async with running_node(world=world) as node:
        await node.create("t", 2)
        await node.produce("t", batch(b"a"), partition=1)
    world.storage.rename("/data/t-1", "/data/gone-1")
    async with running_node(world=world) as node:
        assert set(node.broker.logs.all()) == {TopicPartition("t", 0), TopicPartition("t", 1)}
        folders = [name for name in world.storage.list_dir("/data") if name.endswith("-stray")]
        assert [name.partition(".")[0] for name in folders] == ["gone-1"]


async def test_partitions_of_a_directory_that_was_taken_out_of_log_dirs_are_offline(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They are not empty. This holds at later starts too, until the directory is back. The broker registers only the
    directories in use, so no replica in the missing one is elected.
    """
    world = DiskWorld()
    async with running_node(world=world, log_dirs=TWO) as node:
        await node.create("t", 20)
        lost, online = number_in(node, "/two"), number_in(node, "/one")
        for number in (lost, online):
            assert (await node.produce("t", batch(b"a"), partition=number)).error_code == 0
    for _ in range(2):
        caplog.clear()
        async with running_node(world=world, log_dirs=TWO[:1]) as node:
            refused = await node.produce("t", batch(b"b"), partition=lost)
            assert refused.error_code == STORAGE_ERROR
            assert len(node.broker.image.brokers[node.broker.node_id].directories) == 1
            assert node.broker.image.topics["t"].partitions[lost].leader == -1
            assert (await described(node, lost)).offline_replicas == [node.broker.node_id]
            assert (await node.produce("t", batch(b"b"), partition=online)).error_code == 0
            await node.create("new", 6)
            assert (await node.produce("new", batch(b"b"), partition=5)).base_offset == 0
            await node.call(DeleteTopicsRequest(topic_names=["new"], timeout_ms=1000), 5)
            assert not world.storage.exists(f"/one/t-{lost}")
        (line,) = [record.message for record in caplog.records if "can be used: restore or repair it" in record.message]
        assert line.startswith("no data directory has a log of t-")
        assert "and 5 others; " in line
    async with running_node(world=world, log_dirs=TWO) as node:
        assert (await described(node, lost)).offline_replicas == []
        assert (await node.produce("t", batch(b"b"), partition=lost)).base_offset == 1
        assert len(node.broker.image.brokers[node.broker.node_id].directories) == 2


async def test_partitions_of_a_directory_that_is_gone_start_over_where_their_topic_allows_it() -> None:
    """They start over at once, and the next start no longer knows the directory."""
    world = DiskWorld()
    async with running_node(world=world, log_dirs=TWO) as node:
        await node.create("t", 4)
        lost = number_in(node, "/two")
        assert (await node.produce("t", batch(b"a"), partition=lost)).error_code == 0
    async with running_node(world=world, log_dirs=TWO[:1]) as node:
        assert (await node.produce("t", batch(b"b"), partition=lost)).error_code == STORAGE_ERROR
        allowed = AlterableConfig(name="unclean.leader.election.enable", config_operation=0, value="true")
        topic = AlterConfigsResource(resource_type=2, resource_name="t", configs=[allowed])
        assert (await node.call(IncrementalAlterConfigsRequest(resources=[topic]), 1)).responses[0].error_code == 0
        for number in range(4):
            assert (await described(node, number)).offline_replicas == []
        with trio.fail_after(60):  # the controller learns the new directory, and elects the replica
            while (answer := await node.produce("t", batch(b"b"), partition=lost)).error_code:
                await trio.sleep(0.01)
        assert answer.base_offset == 0
    async with running_node(world=world, log_dirs=TWO[:1]) as node:
        assert len(node.broker.image.brokers[node.broker.node_id].directories) == 1


async def test_cordoned_directory_gets_no_new_logs_once_the_metadata_have_a_place_for_it() -> None:
    """KIP-1066 needs metadata.version 4.3. A broker whose directories are all cordoned gets no new partitions."""
    async with running_node(log_dirs=TWO, cordoned_log_dirs=("/two",), broker_heartbeat_interval_ms=10) as node:
        await node.create("before", 4)
        assert {node.broker.logs.directory_of(key) for key in node.broker.logs.all()} == {"/one", "/two"}
        update = FeatureUpdateKey(feature="metadata.version", max_version_level=30, upgrade_type=1)
        assert (await node.call(UpdateFeaturesRequest(timeout_ms=1000, feature_updates=[update]), 2)).error_code == 0
        with trio.fail_after(60):
            while not node.broker.image.brokers[node.broker.node_id].cordoned_directories:
                await trio.sleep(0.01)
        await node.create("after", 4)
        assert {node.broker.logs.directory_of(TopicPartition("after", number)) for number in range(4)} == {"/one"}
        described = await node.call(DescribeLogDirsRequest(topics=None), 5)
        assert {result.log_dir: result.is_cordoned for result in described.results} == {"/one": False, "/two": True}
        with pytest.raises(errors.InvalidReplicationAssignmentError, match="cordoned"):
            node.broker.logs.mover.move(TopicPartition("after", 0), "/two")
        everything = AlterableConfig(name="cordoned.log.dirs", config_operation=0, value="*")
        broker = AlterConfigsResource(resource_type=4, resource_name=str(node.broker.node_id), configs=[everything])
        assert (await node.call(IncrementalAlterConfigsRequest(resources=[broker]), 1)).responses[0].error_code == 0
        with trio.fail_after(60):
            while len(node.broker.image.brokers[node.broker.node_id].cordoned_directories or ()) < 2:
                await trio.sleep(0.01)
        topic = CreatableTopic(name="nowhere", num_partitions=1, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=1000)
        (refused,) = (await node.broker.gateway.create_topics(request)).topics
        assert "have all their log directories cordoned" in (refused.error_message or "")


async def test_cordoned_directories_are_refused_below_their_metadata_version() -> None:
    async with running_node(log_dirs=TWO) as node:
        entry = AlterableConfig(name="cordoned.log.dirs", config_operation=0, value="/two")
        broker = AlterConfigsResource(resource_type=4, resource_name=str(node.broker.node_id), configs=[entry])
        (refused,) = (await node.call(IncrementalAlterConfigsRequest(resources=[broker]), 1)).responses
        assert refused.error_code == errors.InvalidConfigurationError.code
        assert "metadata.version >= 4.3-IV0" in (refused.error_message or "")


async def test_partitions_of_a_disk_that_failed_and_was_then_taken_out_are_offline() -> None:
    """The next start still knows partitions that were offline at the last one."""
    world = DiskWorld()
    async with running_node(world=world, log_dirs=TWO) as node:
        await node.create("t", 4)
        lost = number_in(node, "/two")
    take_back = world.storage.inject(DiskFault("*", "/two*", errno.EIO))
    async with running_node(world=world, log_dirs=TWO) as node:
        assert (await node.produce("t", batch(b"b"), partition=lost)).error_code == STORAGE_ERROR
    take_back()
    async with running_node(world=world, log_dirs=TWO[:1]) as node:
        assert (await node.produce("t", batch(b"b"), partition=lost)).error_code == STORAGE_ERROR


async def test_log_that_was_removed_by_hand_starts_over(caplog: pytest.LogCaptureFixture) -> None:
    """No directory is missing, so the log cannot be in one of them."""
    world = DiskWorld()
    async with running_node(world=world, log_dirs=TWO) as node:
        await node.create("t", 4)
        lost = number_in(node, "/two")
        assert (await node.produce("t", batch(b"a"), partition=lost)).error_code == 0
    world.storage.remove_tree(f"/two/t-{lost}")
    async with running_node(world=world, log_dirs=TWO) as node:
        assert (await node.produce("t", batch(b"b"), partition=lost)).base_offset == 0
    assert f"no data directory has a usable log of t-{lost}; they start empty unless a log is damaged" in caplog.text


async def test_a_start_without_the_metadata_log_is_refused_where_there_are_logs() -> None:
    """No log is set aside. When the directory is back, the broker starts with all its data."""
    world = DiskWorld()
    async with running_node(world=world, log_dirs=TWO) as node:
        await node.create("t", 4)
        here = number_in(node, "/two")
        assert (await node.produce("t", batch(b"a"), partition=here)).error_code == 0
    before = world.storage.list_dir("/two")
    with pytest.raises(errors.ConfigurationError, match=r"/two has no __cluster_metadata-0.*as in /two/t-\d"):
        async with running_node(world=world, log_dirs=TWO[1:]):
            raise AssertionError("it must not start")
    assert world.storage.list_dir("/two") == before
    async with running_node(world=world, log_dirs=TWO[::-1], metadata_log_dir="/one") as node:
        assert (await node.produce("t", batch(b"b"), partition=here)).base_offset == 1


@pytest.mark.parametrize("began_before", [False, True])
async def test_a_start_is_refused_where_another_directory_has_a_metadata_log(began_before: bool) -> None:
    """Directories in another order would be a new, empty cluster; so it is refused, as by Kafka."""
    world = DiskWorld()
    async with running_node(world=world, log_dirs=TWO[:1]):
        pass  # no topic yet; but there may be users, quotas and configurations
    if began_before:
        world.storage.make_dirs_durably("/two/__cluster_metadata-0")
    with pytest.raises(errors.ConfigurationError, match=r"/one has __cluster_metadata-0.*metadata\.log\.dir"):
        async with running_node(world=world, log_dirs=TWO[::-1]):
            raise AssertionError("it must not start")
    world.storage.remove_tree("/two")
    async with running_node(world=world, log_dirs=TWO[::-1], metadata_log_dir="/one"):
        pass


async def test_the_configuration_of_topics_is_known_when_their_logs_are_recovered() -> None:
    """Gaps between segments are natural where a topic is compacted, and a loss where it is not."""
    world = DiskWorld()
    async with running_node(world=world) as node:
        await node.create("t", cleanup_policy="compact", segment_ms="123456")
    world.storage.remove("/data/.kafka_cleanshutdown")
    async with running_node(world=world) as node:
        log = node.broker.logs.get(TopicPartition("t", 0))
        assert log is not None
        assert log.active_segment.config.segment_ms == 123456
