"""The metadata log on disk as a `RaftLog`: appends of the leader's bytes, truncation by epoch, snapshots, crashes."""

from __future__ import annotations

import errno
import random

import pytest

from tests.unit.broker_stub.clusters import cluster, encode_snapshot, topic
from triokafka.broker_stub.metadata.records import encode_records
from triokafka.broker_stub.metadata.snapshots import SnapshotId
from triokafka.broker_stub.raft.metadata_log import MetadataLogFiles
from triokafka.broker_stub.raft.raft_log_interface import OffsetAndEpoch, RaftLog
from triokafka.errors import CorruptRecordError, IllegalStateError, KafkaStorageError, OffsetOutOfRangeError
from triokafka.protocol.stored.cluster_metadata import NoOpRecord
from triokafka.records import iter_batches
from triokafka.world.memory import DiskFault, MemoryStorage

FOLDER = "/data/__cluster_metadata-0"


def opened(storage: MemoryStorage | None = None) -> MetadataLogFiles:
    storage = MemoryStorage() if storage is None else storage
    storage.make_dirs_durably("/data")
    return MetadataLogFiles(storage, "/data", now_ms=0)


def batch(base_offset: int, epoch: int, count: int = 1) -> bytes:
    records = [NoOpRecord() for _ in range(count)]
    return encode_records(records, base_offset=base_offset, epoch=epoch, timestamp_ms=5, metadata_version=25)


def append(log: MetadataLogFiles, *epochs: int) -> None:
    """Append one batch of one record per epoch."""
    for epoch in epochs:
        log.append(batch(log.end_offset, epoch), now_ms=1)


def flush(log: MetadataLogFiles) -> None:
    job = log.begin_flush()
    if job is not None:
        job.run()
        log.flushed(job)


def snapshot(log: MetadataLogFiles, end_offset: int, epoch: int) -> SnapshotId:
    writer = log.store_snapshot(SnapshotId(end_offset, epoch))
    assert writer is not None
    image = cluster(topic("t", [1]))._replace(offset=end_offset - 1, epoch=epoch)
    writer.append(encode_snapshot(image, timestamp_ms=1))
    writer.finish()
    return writer.snapshot_id


def offsets(log: MetadataLogFiles) -> list[tuple[int, int]]:
    """Base offset and epoch of every batch."""
    return [(found.base_offset, found.epoch) for found in log.read_all()]


def test_files_are_a_raft_log() -> None:
    log: RaftLog = opened()
    assert (log.start_offset, log.end_offset, log.last_epoch, log.flushed_offset) == (0, 0, 0, 0)


class TestAppend:
    def test_batches_of_the_leader_keep_offsets_and_epochs(self) -> None:
        log = opened()
        log.append(batch(0, 1, 3) + batch(3, 4), now_ms=1)
        assert (log.end_offset, log.last_epoch) == (4, 4)
        assert offsets(log) == [(0, 1), (3, 4)]

    @pytest.mark.parametrize("base_offset, epoch", [(0, 2), (2, 2), (1, 1)])
    def test_batch_that_does_not_follow_is_refused(self, base_offset: int, epoch: int) -> None:
        log = opened()
        append(log, 2)
        with pytest.raises(CorruptRecordError):
            log.append(batch(base_offset, epoch), now_ms=1)
        assert log.end_offset == 1

    @pytest.mark.parametrize("data", [b"", b"no batch", batch(0, 1)[:-1], b"\0" * 100])
    def test_bytes_that_are_no_batch_are_refused(self, data: bytes) -> None:
        with pytest.raises(CorruptRecordError):
            opened().append(data, now_ms=1)

    def test_damaged_batch_is_refused(self) -> None:
        data = bytearray(batch(0, 1))
        data[-1] ^= 1
        log = opened()
        with pytest.raises(CorruptRecordError):
            log.append(data, now_ms=1)
        assert log.end_offset == 0

    def test_full_disk_appends_nothing(self) -> None:
        storage = MemoryStorage()
        log = opened(storage)
        append(log, 1)
        heal = storage.inject(DiskFault("write", "*.log", errno.ENOSPC, partial=20))
        with pytest.raises(KafkaStorageError):
            append(log, 1)
        assert offsets(log) == [(0, 1)]
        heal()
        append(log, 1)
        assert offsets(log) == [(0, 1), (1, 1)]

    def test_full_disk_at_the_first_write_appends_nothing(self) -> None:
        storage = MemoryStorage()
        log = opened(storage)
        heal = storage.inject(DiskFault("write", "*.log", errno.ENOSPC, partial=20))
        with pytest.raises(KafkaStorageError):
            append(log, 1)
        heal()
        append(log, 2)
        log.close()
        assert offsets(opened(storage)) == [(0, 2)]


class TestEpochs:
    def test_end_of_an_epoch_is_the_start_of_the_next_one(self) -> None:
        log = opened()
        append(log, 1, 1, 3, 5, 5)
        found = [log.end_offset_for_epoch(epoch) for epoch in range(7)]
        assert found == [(0, 0), (2, 1), (2, 1), (3, 3), (3, 3), (5, 5), (5, 5)]

    def test_epochs_are_known_after_a_restart(self) -> None:
        storage = MemoryStorage()
        log = opened(storage)
        append(log, 1, 1, 3)
        log.close()
        assert opened(storage).end_offset_for_epoch(2) == OffsetAndEpoch(2, 1)

    @pytest.mark.parametrize("content", [None, b"torn"])
    def test_epochs_are_found_in_the_batches_without_their_checkpoint(self, content: bytes | None) -> None:
        storage = MemoryStorage()
        log = opened(storage)
        append(log, 1, 1, 3, 4)
        flush(log)
        snapshot(log, 4, 4)
        log.close()
        path = f"{FOLDER}/leader-epoch-checkpoint"
        storage.remove(path) if content is None else storage.replace_file(path, content)
        again = opened(storage)
        found = [again.end_offset_for_epoch(epoch) for epoch in range(5)]
        assert found == [
            (0, 0),
            (2, 1),
            (2, 1),
            (3, 3),
            (4, 4),
        ]

    def test_truncation_forgets_records_and_their_epochs(self) -> None:
        log = opened()
        append(log, 1, 1, 3, 5)
        flush(log)
        log.truncate_to(2)
        assert (log.end_offset, log.last_epoch, log.flushed_offset) == (2, 1, 2)
        assert log.end_offset_for_epoch(9) == OffsetAndEpoch(2, 1)
        append(log, 6)
        assert offsets(log) == [(0, 1), (1, 1), (2, 6)]

    def test_truncation_survives_a_power_cut(self) -> None:
        for seed in range(10):
            storage = MemoryStorage()
            log = opened(storage)
            append(log, 1, 1, 3, 5)
            flush(log)
            log.truncate_to(2)
            storage.crash(random.Random(seed))
            again = opened(storage)
            assert offsets(again) == [(0, 1), (1, 1)] and again.last_epoch == 1

    def test_records_of_a_snapshot_are_not_truncated(self) -> None:
        log = opened()
        append(log, 1, 1, 1)
        flush(log)
        log.delete_before_snapshot(snapshot(log, 2, 1))
        with pytest.raises(IllegalStateError):
            log.truncate_to(1)


class TestFlush:
    def test_append_is_flushed_by_a_job_that_began_after_it(self) -> None:
        log = opened()
        append(log, 1)
        job = log.begin_flush()
        assert job is not None
        append(log, 1)
        job.run()
        assert log.flushed_offset == 0
        log.flushed(job)
        assert (log.flushed_offset, log.end_offset) == (1, 2)
        flush(log)
        assert log.flushed_offset == 2 and log.begin_flush() is None

    def test_job_from_before_a_truncation_flushes_nothing_after_it(self) -> None:
        log = opened()
        append(log, 1, 1, 1)
        job = log.begin_flush()
        assert job is not None
        job.run()
        log.truncate_to(1)
        append(log, 2, 2)
        log.flushed(job)
        assert log.flushed_offset <= 1

    def test_flushed_records_survive_a_power_cut(self) -> None:
        for seed in range(20):
            storage = MemoryStorage()
            log = opened(storage)
            append(log, 1, 1, 2)
            flush(log)
            append(log, 2, 2)
            storage.crash(random.Random(seed))
            again = opened(storage)
            assert 3 <= again.end_offset <= 5 and offsets(again)[:3] == [(0, 1), (1, 1), (2, 2)]
            assert again.last_epoch == 2


class TestRead:
    def test_batches_up_to_an_offset_are_read(self) -> None:
        log = opened()
        append(log, 1, 1, 1)
        found = [info.base_offset for info in iter_batches(log.read(1, 1 << 20, up_to=2))]
        assert found == [1] and not log.read(3, 100)

    def test_a_batch_over_the_limit_is_read_alone(self) -> None:
        log = opened()
        append(log, 1, 1)
        assert [info.base_offset for info in iter_batches(log.read(0, 1))] == [0]

    def test_offset_outside_the_log_is_refused(self) -> None:
        log = opened()
        append(log, 1)
        with pytest.raises(OffsetOutOfRangeError):
            log.read(2, 100)


class TestSnapshots:
    def test_snapshot_exists_once_it_is_finished(self) -> None:
        storage = MemoryStorage()
        log = opened(storage)
        append(log, 1)
        writer = log.store_snapshot(SnapshotId(1, 1))
        assert writer is not None
        writer.append(b"abc")
        writer.append(memoryview(b"de"))
        assert log.latest_snapshot_id() is None and writer.size == 5
        writer.finish()
        assert log.latest_snapshot_id() == log.earliest_snapshot_id() == SnapshotId(1, 1)
        assert log.snapshot_size(SnapshotId(1, 1)) == 5
        assert bytes(log.read_snapshot(SnapshotId(1, 1), 1, 3)) == b"bcd"
        assert log.store_snapshot(SnapshotId(1, 1)) is None
        assert log.snapshot_size(SnapshotId(2, 1)) is None

    def test_abandoned_or_interrupted_snapshot_leaves_nothing(self) -> None:
        storage = MemoryStorage()
        log = opened(storage)
        for end_offset in (1, 2):
            writer = log.store_snapshot(SnapshotId(end_offset, 1))
            assert writer is not None
            writer.append(b"abc")
            if end_offset == 1:
                writer.abandon()
                assert not [name for name in storage.list_dir(FOLDER) if "checkpoint.part" in name]
        opened(storage)
        assert not [name for name in storage.list_dir(FOLDER) if ".checkpoint" in name]

    @pytest.mark.parametrize("kind", ["write", "sync"])
    def test_disk_that_fails_leaves_no_snapshot(self, kind: str) -> None:
        storage = MemoryStorage()
        log = opened(storage)
        storage.inject(DiskFault(kind, "*.checkpoint*", errno.ENOSPC))
        with pytest.raises(KafkaStorageError):
            snapshot(log, 1, 1)
        assert log.latest_snapshot_id() is None
        assert not [name for name in storage.list_dir(FOLDER) if ".checkpoint" in name]

    def test_finished_snapshot_survives_a_power_cut(self) -> None:
        for seed in range(10):
            storage = MemoryStorage()
            log = opened(storage)
            append(log, 1)
            flush(log)
            known = snapshot(log, 1, 1)
            storage.crash(random.Random(seed))
            assert opened(storage).latest_snapshot_id() == known

    def test_fetched_snapshot_replaces_a_log_that_ends_before_it(self) -> None:
        storage = MemoryStorage()
        log = opened(storage)
        append(log, 1, 1, 2)
        first, known = snapshot(log, 2, 1), snapshot(log, 10, 4)
        assert log.truncate_to_latest_snapshot()
        assert (log.start_offset, log.end_offset, log.last_epoch, log.flushed_offset) == (10, 10, 4, 10)
        assert log.end_offset_for_epoch(4) == log.end_offset_for_epoch(9) == OffsetAndEpoch(10, 4)
        assert log.earliest_snapshot_id() == known and log.snapshot_size(first) is None
        append(log, 5)
        log.close()
        again = opened(storage)
        assert (again.start_offset, again.end_offset, again.last_epoch) == (10, 11, 5)
        assert again.end_offset_for_epoch(4) == OffsetAndEpoch(10, 4)

    def test_log_that_reaches_over_its_snapshot_stays(self) -> None:
        log = opened()
        append(log, 1, 1, 2)
        snapshot(log, 2, 1)
        assert not log.truncate_to_latest_snapshot() and log.end_offset == 3

    def test_stop_between_a_fetched_snapshot_and_the_end_of_the_old_log_is_repaired_at_the_start(self) -> None:
        storage = MemoryStorage()
        log = opened(storage)
        append(log, 1)
        flush(log)
        snapshot(log, 10, 4)
        log.close()
        again = opened(storage)
        with pytest.raises(KafkaStorageError, match="before the snapshot"):
            again.reconcile(alone=True, now_ms=0)
        again.reconcile(alone=False, now_ms=0)
        assert (again.start_offset, again.end_offset, again.last_epoch) == (10, 10, 4)

    def test_records_and_snapshots_before_a_snapshot_are_deleted(self) -> None:
        storage = MemoryStorage()
        log = opened(storage)
        append(log, 1, 1, 2, 2)
        flush(log)
        old, new = snapshot(log, 1, 1), snapshot(log, 3, 2)
        assert log.delete_before_snapshot(new) and not log.delete_before_snapshot(new)
        assert (log.start_offset, log.end_offset) == (3, 4)
        assert log.earliest_snapshot_id() == new and log.snapshot_size(old) is None
        assert log.end_offset_for_epoch(1) == OffsetAndEpoch(3, 2)
        with pytest.raises(OffsetOutOfRangeError):
            log.read(0, 100)
