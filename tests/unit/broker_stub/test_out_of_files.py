"""A process without free file descriptors: errors have names, nothing is lost, and the broker continues afterwards."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import trio
import trio.testing

from tests.unit.broker_stub.api.node import Node, batch, memory_world, running_node
from triokafka import errors
from triokafka.protocol.api.create_topics import CreatableTopic, CreateTopicsRequest
from triokafka.protocol.api.delete_topics import DeleteTopicsRequest
from triokafka.protocol.api.find_coordinator import FindCoordinatorRequest
from triokafka.protocol.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from triokafka.protocol.api.metadata import MetadataRequest, MetadataRequestTopic
from triokafka.protocol.api.offset_commit import OffsetCommitRequest
from triokafka.records import decode_records
from triokafka.structs import TopicPartition
from triokafka.world.memory import DiskFault, MemoryStorage
from triokafka.world.system import RealWorld

T = TypeVar("T")
STORAGE_ERROR = errors.KafkaStorageError.code


async def values(node: Node, topic: str = "t") -> list[bytes | None]:
    """The values of all records, segment by segment."""
    found: list[bytes | None] = []
    while True:
        (partition,) = await node.fetch(topic, len(found))
        assert partition.error_code == 0
        if not partition.records:
            return found
        found += [record.value for record in decode_records(partition.records)]


def still_online(node: Node) -> bool:
    return not node.broker.logs.offline_directories() and node.process.failure is None


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
async def test_a_segment_that_cannot_be_begun_is_begun_by_the_next_append(code: int) -> None:
    """The append that would have rolled is refused, and nothing of it is in the log."""
    world = memory_world()
    assert isinstance(world.storage, MemoryStorage)
    async with running_node(world=world) as node:
        await node.create("t", internal_segment_bytes="200")
        assert (await node.produce("t", batch(b"a" * 100))).error_code == 0
        world.storage.inject(DiskFault("open", "*.log", code))
        assert (await node.produce("t", batch(b"b" * 100))).error_code == STORAGE_ERROR
        assert still_online(node)
        world.storage.faults.clear()
        produced = await node.produce("t", batch(b"c" * 100))
        assert (produced.error_code, produced.base_offset) == (0, 1)
        assert await values(node) == [b"a" * 100, b"c" * 100]
        assert len(node.broker.replicas.partition(("t", 0)).log.segments) == 2


@pytest.mark.parametrize("path", ["*.index", "*.timeindex", "*.snapshot*", "*leader-epoch*"])
async def test_files_beside_the_records_that_cannot_be_opened_cost_nothing_that_was_acknowledged(path: str) -> None:
    """Through rolls, and a start after a kill."""
    world = memory_world()
    assert isinstance(world.storage, MemoryStorage)
    async with running_node(world=world) as node:
        await node.create("t", internal_segment_bytes="200")
        world.storage.inject(DiskFault("open", path, errno.EMFILE))
        acknowledged: list[bytes] = []
        for value in (b"%d" % number * 50 for number in range(6)):
            options = {"producer_id": 5, "producer_epoch": 0, "base_sequence": len(acknowledged)}
            produced = await node.produce("t", batch(value, **options))
            if not produced.error_code:
                acknowledged.append(value)
        await node.broker.logs.flush_sealed()
        assert still_online(node)
        world.storage.faults.clear()
        acknowledged.append(b"last")
        options = {"producer_id": 5, "producer_epoch": 0, "base_sequence": len(acknowledged) - 1}
        assert (await node.produce("t", batch(b"last", **options))).error_code == 0
        assert await values(node) == acknowledged
        await node.process.kill()
    world.storage.kill()
    async with running_node(world=world) as node:
        assert await values(node) == acknowledged


async def test_a_log_whose_file_cannot_be_opened_for_reading_is_read_later() -> None:
    """The file was closed to free a descriptor for others."""
    world = memory_world()
    assert isinstance(world.storage, MemoryStorage)
    async with running_node(world=world) as node:
        await node.create("t")
        await node.produce("t", batch(b"a"))
        node.broker.logs._directories.files.close_all()
        world.storage.inject(DiskFault("open", "*.log", errno.EMFILE))
        (partition,) = await node.fetch("t", 0)
        assert partition.error_code == STORAGE_ERROR
        assert still_online(node)
        world.storage.faults.clear()
        assert await values(node) == [b"a"]


async def test_checkpoints_that_cannot_be_written_are_written_later() -> None:
    world = memory_world()
    assert isinstance(world.storage, MemoryStorage)
    async with running_node(world=world) as node:
        await node.create("t")
        await node.produce("t", batch(b"a"))
        world.storage.inject(DiskFault("open", "*checkpoint.tmp", errno.EMFILE))
        logs, replicas = node.broker.logs, node.broker.replicas
        with pytest.raises(errors.KafkaStorageError, match="replication-offset-checkpoint"):
            logs.checkpoint_high_watermarks(replicas.high_watermarks())
        await logs.flush_due()
        await logs.flush_sealed()
        assert still_online(node)
        world.storage.faults.clear()
        logs.checkpoint_high_watermarks(replicas.high_watermarks())
        assert logs.read_high_watermarks()["t", 0] == 1  # type: ignore[index]  # a plain tuple is as good
        assert (await node.produce("t", batch(b"b"))).error_code == 0
        assert await values(node) == [b"a", b"b"]


async def test_partition_whose_log_creation_failed_is_created_later() -> None:
    """No restart is needed: the next request for the partition retries."""
    world = memory_world()
    assert isinstance(world.storage, MemoryStorage)
    async with running_node(world=world) as node:
        await node.create("t")
        world.storage.inject(DiskFault("open", "*/new-0/*", errno.EMFILE))
        await node.create("new")
        assert (await node.produce("new", batch(b"a"))).error_code == STORAGE_ERROR
        assert still_online(node)
        assert (await node.produce("t", batch(b"a"))).error_code == 0
        world.storage.faults.clear()
        produced = await node.produce("new", batch(b"b"))
        assert (produced.error_code, produced.base_offset) == (0, 0)
        assert await values(node, "new") == [b"b"]
        assert not node.broker.replicas.is_offline(("new", 0))


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOSPC])
@pytest.mark.parametrize("partitions", [1, 10])
async def test_a_log_that_could_not_be_made_is_made_where_it_was_begun(code: int, partitions: int) -> None:
    """Its remains in one data directory and a log in another would prevent the broker from starting."""
    world = memory_world()
    assert isinstance(world.storage, MemoryStorage)
    directories = ("/one", "/two")
    async with running_node(world=world, log_dirs=directories) as node:
        # Folders of the deleted topic remain that no log uses.
        for name, deleted in (("old", True), ("new", False)):
            world.storage.inject(DiskFault("open", f"*/{name}-*.log", code))
            await node.create(name, partitions)
            assert (await node.produce(name, batch(b"a"))).error_code == STORAGE_ERROR
            world.storage.faults.clear()
            await node.create(f"other-{name}")
            if deleted:
                request = DeleteTopicsRequest(topic_names=[name], timeout_ms=1000)
                assert (await node.call(request, 5)).responses[0].error_code == 0
                await node.create(name, partitions)
            for number in range(partitions):
                assert (await node.produce(name, batch(b"b"), partition=number)).error_code == 0
    async with running_node(world=world, log_dirs=directories) as node:
        for name in ("old", "new"):
            for number in range(partitions):
                assert (await node.produce(name, batch(b"c"), partition=number)).base_offset == 1


class HealedByTheStart(RealWorld):
    """A world in memory: files of ``t`` cannot be opened until all logs were looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = MemoryStorage(crashable=False)
        self.storage = self.memory
        self.opened: list[str] = []

    async def run_in_thread(self, function: Callable[..., T], *args: Any) -> T:
        if function.__name__ == "_take_over" and self.memory.faults:
            self.memory.faults.clear()
            self.memory.before_operation = lambda operation, path, size: self.opened.append(path)
        return await super().run_in_thread(function, *args)


async def test_logs_that_could_not_be_opened_at_the_start_are_left_alone_until_the_next() -> None:
    """A new leader of their partitions does not create them again."""
    world = HealedByTheStart()
    async with running_node(world=world) as node:
        await node.create("t", 10)
        for number in range(10):
            await node.produce("t", batch(b"a", b"b"), partition=number)
    world.memory.inject(DiskFault("open", "*/t-*/*", errno.EMFILE))
    async with running_node(world=world) as node:
        for number in range(10):
            assert (await node.produce("t", batch(b"c"), partition=number)).error_code == STORAGE_ERROR
        assert not [path for path in world.opened if "/t-" in path]
        kept = node.broker.logs.read_high_watermarks()
        assert [kept[TopicPartition("t", number)] for number in range(10)] == [2] * 10
    async with running_node(world=world) as node:
        for number in range(10):
            assert (await node.produce("t", batch(b"c"), partition=number)).base_offset == 2


async def test_metadata_request_retries_failed_log_creation() -> None:
    """A client sends only metadata requests for a partition without a leader."""
    world = memory_world()
    assert isinstance(world.storage, MemoryStorage)
    async with running_node(world=world) as node:
        world.storage.inject(DiskFault("open", "*/new-0/*", errno.EMFILE))
        await node.create("new")
        request = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
        (partition,) = (await node.call(request, 9)).topics[0].partitions
        assert partition.error_code == errors.LeaderNotAvailableError.code
        world.storage.faults.clear()
        (partition,) = (await node.call(request, 9)).topics[0].partitions
        assert (partition.error_code, partition.offline_replicas) == (0, [])
        assert (await node.produce("new", batch(b"a"))).base_offset == 0


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("partitions", [1, 50])
async def test_groups_work_once_there_is_room_for_their_log(
    asked: bool, partitions: int, autojump_clock: trio.testing.MockClock
) -> None:
    """The disk was full when ``__consumer_offsets`` was created; no restart is needed, nor a request for its log."""
    world = memory_world()
    assert isinstance(world.storage, MemoryStorage)
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    async with running_node(world=world, offsets_topic_num_partitions=partitions) as node:
        world.storage.inject(DiskFault("open", "*/__consumer_offsets-*/*.log", errno.ENOSPC))
        (found,) = (await node.call(find, 4)).coordinators
        assert found.error_code == errors.CoordinatorNotAvailableError.code
        assert "__consumer_offsets" in (found.error_message or "")
        world.storage.faults.clear()
        if asked:
            (found,) = (await node.call(find, 4)).coordinators
            assert found.error_code == 0
        else:
            await trio.sleep(30)
        commit = OffsetCommitRequest(group_id="g", topics=[])
        assert (await node.call(commit, 8)).topics == []
        joined = await node.call(
            JoinGroupRequest(
                group_id="g",
                session_timeout_ms=6000,
                rebalance_timeout_ms=6000,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            ),
            5,
        )
        assert joined.error_code == errors.MemberIdRequiredError.code


async def test_create_topics_reports_partitions_whose_logs_could_not_be_created() -> None:
    world = memory_world()
    assert isinstance(world.storage, MemoryStorage)
    topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in ("new", "other")]
    async with running_node(world=world) as node:
        world.storage.inject(DiskFault("open", "*/new-1/*", errno.ENOSPC))
        new, other = (await node.call(CreateTopicsRequest(topics=topics, timeout_ms=1000), 7)).topics
        assert (new.error_code, other.error_code) == (STORAGE_ERROR, 0)
        assert "Topic new was created, but 1 of its 2 partitions are offline" in (new.error_message or "")
        assert (await node.produce("new", batch(b"a"), partition=0)).error_code == 0
        world.storage.faults.clear()
        assert (await node.produce("new", batch(b"a"), partition=1)).error_code == 0


async def test_reader_of_damage_gets_corrupt_message_and_the_broker_reports_it_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = memory_world()
    assert isinstance(world.storage, MemoryStorage)
    async with running_node(world=world) as node:
        await node.create("t")
        for value in (b"a", b"b", b"c"):
            await node.produce("t", batch(value))
        file = world.storage.open(f"/data/t-0/{0:020d}.log")
        file.write_at(8, b"\0\0\xff\xff")
        file.close()
        for _ in range(3):
            (partition,) = await node.fetch("t", 0)
            assert partition.error_code == errors.CorruptRecordError.code
    assert len([record for record in caplog.records if "t-0: the log is damaged" in record.getMessage()]) == 1
