"""The interface of the metadata log's storage for the quorum: records by offset and epoch, and snapshots.

All calls are synchronous. The caller is the quorum's state machine, on the event loop; only `PendingFlush.run` and
`SnapshotWriter.finish` may take as long as a sync of the disk, and the driver runs them in a thread.
"""

from __future__ import annotations

from typing import Protocol

from triokafka.broker_stub.metadata.snapshots import SnapshotId
from triokafka.named_tuple import NamedTuple
from triokafka.structs import Buffer

__all__ = ["OffsetAndEpoch", "PendingFlush", "RaftLog", "SnapshotId", "SnapshotWriter"]


class OffsetAndEpoch(NamedTuple):
    """An end offset, and the epoch of the record before it."""

    offset: int
    epoch: int


class PendingFlush(Protocol):
    """The syncs of one flush: everything appended before `RaftLog.begin_flush`."""

    def run(self) -> None:
        """Sync, in any thread. Raises `OSError`."""


class SnapshotWriter(Protocol):
    """A snapshot that is being written. It exists for readers once `finish` has returned."""

    @property
    def snapshot_id(self) -> SnapshotId:
        """The id that the snapshot will have."""

    @property
    def size(self) -> int:
        """Bytes appended so far."""

    def append(self, data: Buffer) -> None:
        """Append a part of the snapshot, which need not end with a batch. Raises `KafkaStorageError`."""

    def check(self) -> None:
        """Check that the appended bytes are a whole snapshot; callable in a thread. Raises `KafkaStorageError`."""

    def finish(self) -> None:
        """Sync the snapshot and give it its name atomically; callable in a thread. Raises `KafkaStorageError`."""

    def abandon(self) -> None:
        """Delete the written part. Does nothing after `finish`."""


class RaftLog(Protocol):
    """The replicated log of one node, ``__cluster_metadata-0``.

    Offsets are consecutive, epochs never decrease. An empty log starts at offset 0 with last epoch 0, or at the end of
    its newest snapshot with the epoch of that snapshot.
    """

    @property
    def start_offset(self) -> int:
        """The offset of the first record; if it is not 0, there is a snapshot that ends at it or later."""

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record; of the snapshot that the log starts with if there is no record; else 0."""

    @property
    def flushed_offset(self) -> int:
        """Every record before this offset survives a crash. Never above ``end_offset``: truncation lowers it."""

    @property
    def is_usable(self) -> bool:
        """False after a failure after which only opening the log again shows what the disk has."""

    def append(self, batches: Buffer, *, now_ms: int) -> None:
        """Append whole batches that already have their offsets and epochs.

        Raises:
            CorruptRecordError: they are not batches, or the first one does not have the end offset of the log as its
                base offset; nothing was appended.
            KafkaStorageError: the disk failed; nothing was appended.
        """

    def truncate_to(self, offset: int) -> None:
        """Remove every record at ``offset`` and above, durably. Raises `KafkaStorageError`."""

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Return the largest epoch of the log that is not above ``epoch``, and the offset at which it ends.

        Without such an epoch it is the start of the log, with the epoch of the snapshot that ends there, or 0.
        """

    def read(self, offset: int, max_bytes: int, *, up_to: int | None = None) -> Buffer:
        """Return whole batches from the one that holds ``offset``, about ``max_bytes`` but at least one batch.

        ``up_to`` excludes batches at that offset and above. Empty at the end of the log. Raises `KafkaStorageError`;
        `OffsetOutOfRangeError` below ``start_offset`` or above ``end_offset``; `CorruptRecordError` for damage.
        """

    def begin_flush(self) -> PendingFlush | None:
        """Prepare a sync of all appended records; None when all are synced. Raises `KafkaStorageError`."""

    def flushed(self, job: PendingFlush) -> None:
        """Record that ``job.run()`` has returned, unless a truncation came in between."""

    # Snapshots

    def latest_snapshot_id(self) -> SnapshotId | None:
        """Return the id of the newest complete snapshot."""

    def earliest_snapshot_id(self) -> SnapshotId | None:
        """Return the id of the snapshot at the start of the log: the oldest one."""

    def snapshot_size(self, snapshot_id: SnapshotId) -> int | None:
        """Return the size of a complete snapshot in bytes; None when it does not exist."""

    def read_snapshot(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> Buffer:
        """Return at most ``max_bytes`` of a snapshot from ``position``.

        Raises `KafkaStorageError`; `CorruptRecordError` for damage. The snapshot no longer has a `snapshot_size` then.
        """

    def store_snapshot(self, snapshot_id: SnapshotId) -> SnapshotWriter | None:
        """Begin to write a snapshot; None when it exists already, undamaged. Raises `KafkaStorageError`."""

    def truncate_to_latest_snapshot(self) -> bool:
        """Empty the log if its newest snapshot ends after the log, or does not fit to its epochs.

        The log then starts and ends at the end of the snapshot. Returns whether it happened. Raises
        `KafkaStorageError`.
        """

    def delete_before_snapshot(self, snapshot_id: SnapshotId) -> bool:
        """Delete older snapshots, and the records before ``snapshot_id`` as far as whole segments go.

        The start of the log becomes the end of the snapshot. Returns whether anything was deleted.
        """
