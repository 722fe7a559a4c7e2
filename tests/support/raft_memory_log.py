"""A metadata log in memory, which loses everything that was not flushed when its node crashes."""

from __future__ import annotations

from typing import NamedTuple

from triokafka.broker_stub.raft.raft_log_interface import OffsetAndEpoch, SnapshotId
from triokafka.errors import CorruptRecordError, KafkaStorageError, OffsetOutOfRangeError
from triokafka.records import iter_batches
from triokafka.structs import Buffer


class StoredBatch(NamedTuple):
    """One batch of the log."""

    base_offset: int
    last_offset: int
    epoch: int
    data: bytes


class MemoryFlushJob:
    """A flush of everything before an offset, unless a truncation comes in between."""

    def __init__(self, end_offset: int, cuts: int) -> None:
        self.end_offset = end_offset
        self.cuts = cuts

    def run(self) -> None:
        """Do nothing."""


class MemorySnapshotWriter:
    """See `raft_log_interface.SnapshotWriter`."""

    def __init__(self, log: MemoryRaftLog, snapshot_id: SnapshotId) -> None:
        self._log = log
        self._snapshot_id = snapshot_id
        self._data = bytearray()

    @property
    def snapshot_id(self) -> SnapshotId:
        """The id that the snapshot will have."""
        return self._snapshot_id

    @property
    def size(self) -> int:
        """Bytes appended so far."""
        return len(self._data)

    def append(self, data: Buffer) -> None:
        """Append a part."""
        self._data += data

    def check(self) -> None:
        """Accept the parts without a check."""

    def finish(self) -> None:
        """Make it readable."""
        self._log.snapshots[self._snapshot_id] = bytes(self._data)

    def abandon(self) -> None:
        """Discard it."""
        self._data.clear()


class MemoryRaftLog:
    """See `raft_log_interface.RaftLog`. ``fail_appends`` and ``fail_flushes`` make the disk fail."""

    def __init__(self) -> None:
        self.batches: list[StoredBatch] = []
        self.snapshots: dict[SnapshotId, bytes] = {}
        self.fail_appends = False
        self._start_offset = 0
        self._flushed_offset = 0
        self._cuts = 0

    # Records

    @property
    def start_offset(self) -> int:
        """See `RaftLog`."""
        return self._start_offset

    @property
    def end_offset(self) -> int:
        """See `RaftLog`."""
        return self.batches[-1].last_offset + 1 if self.batches else self._start_offset

    @property
    def last_epoch(self) -> int:
        """See `RaftLog`."""
        return self.batches[-1].epoch if self.batches else self._start_epoch

    @property
    def _start_epoch(self) -> int:
        return next((known.epoch for known in sorted(self.snapshots) if known.end_offset == self._start_offset), 0)

    @property
    def flushed_offset(self) -> int:
        """See `RaftLog`."""
        return min(self._flushed_offset, self.end_offset)

    @property
    def is_usable(self) -> bool:
        """See `RaftLog`."""
        return True

    def append(self, batches: Buffer, *, now_ms: int) -> None:
        """See `RaftLog`."""
        if self.fail_appends:
            raise KafkaStorageError("the disk is full")
        view, end = memoryview(bytes(batches)), self.end_offset
        found = []
        for info in iter_batches(view):
            if info.base_offset != end:
                raise CorruptRecordError(f"batch at offset {info.base_offset} after the end {end} of the log")
            end = info.last_offset + 1
            data = bytes(view[info.position : info.position + info.size])
            found.append(StoredBatch(info.base_offset, info.last_offset, info.partition_leader_epoch, data))
        self.batches += found

    def truncate_to(self, offset: int) -> None:
        """See `RaftLog`."""
        if self.batches and self.batches[-1].last_offset >= offset:
            self.batches = [batch for batch in self.batches if batch.last_offset < offset]
            self._cuts += 1
        self._flushed_offset = min(self._flushed_offset, self.end_offset)

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """See `RaftLog`."""
        found = [batch for batch in self.batches if batch.epoch <= epoch]
        if not found:
            return OffsetAndEpoch(self._start_offset, self._start_epoch)
        return OffsetAndEpoch(found[-1].last_offset + 1, found[-1].epoch)

    def read(self, offset: int, max_bytes: int, *, up_to: int | None = None) -> Buffer:
        """See `RaftLog`."""
        if not self._start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRangeError(f"offset {offset} is not in [{self._start_offset}, {self.end_offset}]")
        found = bytearray()
        for batch in self.batches:
            if batch.last_offset < offset:
                continue
            if (up_to is not None and batch.base_offset >= up_to) or (
                found and len(found) + len(batch.data) > max_bytes
            ):
                break
            found += batch.data
        return bytes(found)

    def begin_flush(self) -> MemoryFlushJob | None:
        """See `RaftLog`."""
        return None if self.flushed_offset == self.end_offset else MemoryFlushJob(self.end_offset, self._cuts)

    def flushed(self, job: object) -> None:
        """See `RaftLog`."""
        if isinstance(job, MemoryFlushJob) and job.cuts == self._cuts:
            self._flushed_offset = max(self._flushed_offset, job.end_offset)

    # Snapshots

    def latest_snapshot_id(self) -> SnapshotId | None:
        """See `RaftLog`."""
        return max(self.snapshots, default=None)

    def earliest_snapshot_id(self) -> SnapshotId | None:
        """See `RaftLog`."""
        return min(self.snapshots, default=None)

    def snapshot_size(self, snapshot_id: SnapshotId) -> int | None:
        """See `RaftLog`."""
        data = self.snapshots.get(snapshot_id)
        return None if data is None else len(data)

    def read_snapshot(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> Buffer:
        """See `RaftLog`."""
        return self.snapshots[snapshot_id][position : position + max_bytes]

    def store_snapshot(self, snapshot_id: SnapshotId) -> MemorySnapshotWriter | None:
        """See `RaftLog`."""
        return None if snapshot_id in self.snapshots else MemorySnapshotWriter(self, snapshot_id)

    def truncate_to_latest_snapshot(self) -> bool:
        """See `RaftLog`."""
        latest = self.latest_snapshot_id()
        if latest is None or (latest.epoch, latest.end_offset) <= (self.last_epoch, self.end_offset):
            return False
        self.batches = []
        self._start_offset = self._flushed_offset = latest.end_offset
        self._cuts += 1
        self.snapshots = {latest: self.snapshots[latest]}
        return True

    def delete_before_snapshot(self, snapshot_id: SnapshotId) -> bool:
        """See `RaftLog`."""
        if snapshot_id not in self.snapshots or snapshot_id.end_offset <= self._start_offset:
            return False
        self.snapshots = {known: data for known, data in self.snapshots.items() if known >= snapshot_id}
        self._start_offset = snapshot_id.end_offset
        self.batches = [batch for batch in self.batches if batch.base_offset >= snapshot_id.end_offset]
        return True

    # Crashes

    def after_crash(self) -> MemoryRaftLog:
        """Return the contents of the disk after a crash: only flushed data."""
        log = MemoryRaftLog()
        log.batches = [batch for batch in self.batches if batch.last_offset < self.flushed_offset]
        log.snapshots = dict(self.snapshots)
        log._start_offset = self._start_offset
        log._flushed_offset = log.end_offset
        # A finished snapshot whose log was not replaced yet replaces it at the start.
        log.truncate_to_latest_snapshot()
        return log
