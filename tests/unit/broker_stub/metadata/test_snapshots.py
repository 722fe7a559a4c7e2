"""Snapshots of the metadata: their content, when they are written, and the deletion of older files."""

from __future__ import annotations

import errno
import random
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import trio
import trio.testing

from tests.support.log_replay import replayed_batches
from tests.unit.broker_stub.clusters import (
    CONFIG,
    DATA,
    MemoryWorld,
    cluster,
    codes,
    creation,
    encode_snapshot,
    local,
    replayed,
    running,
    topic,
    wanted,
)
from triokafka import errors
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.controller.metadata_log_repair import repair_metadata
from triokafka.broker_stub.log.damage import DamagedLogError
from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.broker_stub.metadata import MetadataImage
from triokafka.broker_stub.metadata.records import LogBatch, decode_batches
from triokafka.broker_stub.metadata.snapshots import (
    SnapshotFiles,
    SnapshotId,
    image_records,
)
from triokafka.broker_stub.raft.metadata_log import MetadataLogFiles
from triokafka.broker_stub.raft.snapshot_file_writer import SnapshotFileWriter
from triokafka.broker_stub.snapshot_generator import SnapshotSchedule
from triokafka.protocol.stored.cluster_metadata import (
    ClientQuotaEntityData,
    ClientQuotaRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RegisterControllerRecord,
)
from triokafka.records import iter_batches
from triokafka.world.memory import DiskFault, MemoryStorage

DIRECTORY = f"{DATA}/__cluster_metadata-0"


def full_image() -> MetadataImage:
    """An image with something of everything."""
    return cluster(
        topic("a.b", [1, 2], [2, 1], configs={"retention.ms": "5"}),
        topic("empty", number=8),
        PartitionChangeRecord(
            partition_id=0, topic_id=uuid.UUID(int=7), replicas=[1, 2, 3], adding_replicas=[3], leader_recovery_state=1
        ),
        PartitionChangeRecord(
            partition_id=1, topic_id=uuid.UUID(int=7), eligible_leader_replicas=[1], last_known_elr=[2]
        ),
        ClientQuotaRecord(
            entity=[ClientQuotaEntityData(entity_type="user", entity_name=None)], key="producer_byte_rate", value=5.5
        ),
        ProducerIdsRecord(broker_id=1, broker_epoch=101, next_producer_id=3000),
        RegisterControllerRecord(controller_id=1),
        brokers=(1, 2, 3),
    )


def snapshot_bytes(image: MetadataImage) -> bytes:
    return encode_snapshot(image, timestamp_ms=77)


def write(storage: MemoryStorage, image: MetadataImage) -> SnapshotId:
    finished: list[SnapshotId] = []
    snapshot_id = SnapshotId(image.offset + 1, image.epoch)
    writer = SnapshotFileWriter(storage, DIRECTORY, snapshot_id, finished=finished.append)
    writer.append(snapshot_bytes(image))
    writer.finish()
    return finished[0]


class TestContent:
    def test_records_of_an_image_lead_to_the_same_image(self) -> None:
        image = full_image()
        again = replayed(image_records(image))
        for name in image._fields:
            if name not in ("offset", "epoch"):
                assert getattr(again, name) == getattr(image, name), name

    def test_snapshot_opens_with_its_time_and_the_quorum_and_ends_with_a_footer(self) -> None:
        first, *middle, last = decode_batches(snapshot_bytes(full_image()))
        assert (first.timestamp_ms, first.kraft_version, first.base_offset, first.last_offset) == (77, 1, 0, 2)
        assert last.ends_snapshot and not any(batch.ends_snapshot for batch in middle)
        assert middle[0].base_offset == 3

    def test_offsets_have_no_gap_over_many_batches(self) -> None:
        image = cluster(topic("t", *([1] for _ in range(3000))))
        infos = list(iter_batches(snapshot_bytes(image), check_crc=True))
        assert len(infos) > 4
        assert [info.base_offset for info in infos[1:]] == [info.last_offset + 1 for info in infos[:-1]]
        assert {info.partition_leader_epoch for info in infos} == {image.epoch}

    def test_snapshot_leads_to_the_image_that_it_was_made_of(self) -> None:
        image = full_image()
        loaded, kraft_version = replayed_batches(decode_batches(snapshot_bytes(image)))
        assert (loaded.epoch, kraft_version) == (image.epoch, 1)
        assert loaded.topics == image.topics


class TestFiles:
    def files(self) -> tuple[MemoryStorage, SnapshotFiles]:
        storage = MemoryStorage()
        storage.make_dirs(DIRECTORY)
        return storage, SnapshotFiles(storage, DIRECTORY)

    def test_snapshot_is_named_by_end_offset_and_epoch(self) -> None:
        storage, files = self.files()
        image = full_image()
        written = write(storage, image)
        assert written == SnapshotId(image.offset + 1, 1)
        assert storage.list_dir(DIRECTORY) == [f"{image.offset + 1:020}-0000000001.checkpoint"]
        assert files.ids() == [written]
        assert files.size(written) == len(snapshot_bytes(image))

    def test_snapshot_that_is_damaged_or_not_whole_is_skipped(self, caplog: pytest.LogCaptureFixture) -> None:
        storage, files = self.files()
        good = write(storage, full_image())
        whole = storage.read_file(f"{DIRECTORY}/{good.file_name}")
        footer = [info.position for info in iter_batches(whole)][-1]
        storage.replace_file(f"{DIRECTORY}/{SnapshotId(1000, 2).file_name}", whole[:footer])
        storage.replace_file(f"{DIRECTORY}/{SnapshotId(1001, 2).file_name}", whole[:50] + b"x" + whole[51:])
        newest = files.newest()
        assert newest is not None and newest.snapshot_id == good
        assert "is incomplete" in caplog.text

    def test_there_may_be_none(self) -> None:
        assert self.files()[1].newest() is None


class TestSchedule:
    def test_bytes_make_one_due(self) -> None:
        schedule = SnapshotSchedule(100, 0, now=0.0)
        assert not schedule.appended(99) and not schedule.due(1e9)
        assert schedule.appended(1) and schedule.due(0.0)
        schedule.taken(10, 5.0)
        assert schedule.bytes == 10 and not schedule.due(5.0)

    def test_time_makes_one_due_only_when_something_was_written(self) -> None:
        schedule = SnapshotSchedule(100, 60_000, now=0.0)
        assert schedule.due_in(20.0) == 40.0
        assert not schedule.due(60.0)
        schedule.appended(1)
        assert not schedule.due(59.9)
        assert schedule.due(60.0)


def small(**options: Any) -> BrokerConfig:
    return BrokerConfig.for_tests(log_dirs=(DATA,), **options)


def snapshot_names(world: MemoryWorld) -> list[str]:
    """The snapshots that the node took; 0-0 comes with the directory's format."""
    names = [name for name in world.disk.list_dir(DIRECTORY) if name.endswith(".checkpoint")]
    return [name for name in names if not name.startswith("0" * 20 + "-")]


class TestController:
    async def test_snapshot_is_taken_when_enough_was_written(self) -> None:
        world = MemoryWorld()
        config = small(metadata_log_max_record_bytes_between_snapshots=2_000)
        async with running(world, config) as controller:
            for number in range(40):
                assert codes(await local(controller).create_topics(creation(wanted(f"t{number}")))) == [0]
            with trio.fail_after(5):
                while not snapshot_names(world):
                    await trio.sleep(0.001)
            image = controller.image
        async with running(world, config, register=False) as controller:
            assert controller.image.topics == image.topics

    async def test_change_while_a_snapshot_is_written_leaves_the_controller_at_rest(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = MemoryWorld()
        finish, begun, may_go_on = SnapshotFileWriter.finish, threading.Event(), threading.Event()

        def slow(writer: SnapshotFileWriter) -> None:
            begun.set()
            may_go_on.wait(10)
            finish(writer)

        monkeypatch.setattr(SnapshotFileWriter, "finish", slow)
        config = small(metadata_log_max_record_bytes_between_snapshots=5_000)
        async with running(world, config) as controller:
            number = 0
            while not begun.is_set():
                number += 1
                assert codes(await local(controller).create_topics(creation(wanted(f"t{number}")))) == [0]
            assert codes(await local(controller).create_topics(creation(wanted("late")))) == [0]
            may_go_on.set()
            with trio.fail_after(5):
                while not snapshot_names(world):
                    await trio.sleep(0.001)
                await trio.testing.wait_all_tasks_blocked()

    async def test_start_reads_nothing_from_before_the_snapshot(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world = MemoryWorld()
        async with running(world) as controller:
            await local(controller).create_topics(creation(wanted("early")))
            end = await controller.take_snapshot()
            await local(controller).create_topics(creation(wanted("late")))
        read_all = MetadataLogFiles.read_all
        starts: list[int | None] = []

        def watched(log: MetadataLogFiles, *, from_offset: int | None = None, **others: Any) -> Iterator[LogBatch]:
            starts.append(from_offset)
            return read_all(log, from_offset=from_offset, **others)

        monkeypatch.setattr(MetadataLogFiles, "read_all", watched)
        async with running(world, register=False) as controller:
            assert set(controller.image.topics) == {"early", "late"}
        assert starts[0] == end

    async def test_log_that_is_empty_begins_after_its_snapshot(self) -> None:
        """As after ``triokafka log repair`` when all segments were lost."""
        world = MemoryWorld()
        async with running(world) as controller:
            await local(controller).create_topics(creation(wanted("t")))
            end = await controller.take_snapshot()
        for name in world.disk.list_dir(DIRECTORY):
            if name.startswith("0" * 20 + ".") and not name.endswith(".checkpoint"):
                world.disk.remove(f"{DIRECTORY}/{name}")
        with pytest.raises(DamagedLogError, match=f"records from offset {end} on are lost"):
            async with running(world):
                pass
        repair_metadata(world.disk, DIRECTORY, now_ms=0)
        async with running(world) as controller:
            assert set(controller.image.topics) == {"t"}
            assert controller.image.offset > end
            assert codes(await local(controller).create_topics(creation(wanted("u")))) == [0]
        async with running(world, register=False) as controller:
            assert set(controller.image.topics) == {"t", "u"}

    async def test_old_snapshots_and_segments_go_and_the_newest_stays(self) -> None:
        """(``metadata.max.retention.bytes``)"""
        world = MemoryWorld()
        config = small(metadata_max_retention_bytes=1, metadata_log_segment_bytes=8 * 1024 * 1024)
        async with running(world, config) as controller:
            for number in range(3):
                await local(controller).create_topics(creation(wanted(f"t{number}")))
                end = await controller.take_snapshot()
            log = controller.metadata.files
            assert log.snapshots.ids()[-1].end_offset == end
            assert len(log.snapshots.ids()) == 1
            assert log.start_offset == end
            image = controller.image
        async with running(world, config, register=False) as controller:
            assert controller.image.topics == image.topics

    async def test_crash_at_any_moment_leaves_a_state_that_can_be_read(self) -> None:
        for seed in range(15):
            world = MemoryWorld()
            async with running(world, small(metadata_max_retention_bytes=1)) as controller:
                for number in range(3):
                    await local(controller).create_topics(creation(wanted(f"t{number}")))
                    await controller.take_snapshot()
                image = controller.image
            world.disk.crash(random.Random(seed))
            async with running(world, CONFIG, register=False) as controller:
                assert controller.image.topics == image.topics

    async def test_disk_without_room_for_a_snapshot_does_no_other_harm(self) -> None:
        world = MemoryWorld()
        async with running(world) as controller:
            await local(controller).create_topics(creation(wanted("t")))
            world.disk.inject(DiskFault("write", "*.checkpoint*", errno.ENOSPC))
            with pytest.raises((OSError, errors.KafkaError)):
                await controller.take_snapshot()
            assert snapshot_names(world) == []
            assert codes(await local(controller).create_topics(creation(wanted("u")))) == [0]

    async def test_start_after_a_crash_checks_only_the_log_after_the_snapshot(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = MemoryWorld()
        async with running(world) as controller:
            await local(controller).create_topics(creation(wanted("early")))
            end = await controller.take_snapshot()
            await local(controller).create_topics(creation(wanted("late")))
        points: list[int] = []
        opened = PartitionLog.open

        def watched(*arguments: Any, **options: Any) -> PartitionLog:
            points.append(options["recovery_point"])
            return opened(*arguments, **options)

        monkeypatch.setattr(PartitionLog, "open", watched)
        world.disk.crash(random.Random(1))
        async with running(world, register=False) as controller:
            assert set(controller.image.topics) == {"early", "late"}
        assert points == [end]
