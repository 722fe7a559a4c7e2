"""The files of the metadata log: ``__cluster_metadata-0`` with its records and snapshots. The `RaftLog` of a node.

Calls block, some of them on the disk; the caller chooses the thread. A batch is durable once a flush that began after
its append has returned.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from typing import Final

from triokafka import topic_names
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.damage import DAMAGED_SUFFIX, DamagedLogError
from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.broker_stub.log.recovery_point import FlushJob
from triokafka.broker_stub.log.segment_names import LOG_SUFFIX
from triokafka.broker_stub.metadata.records import LogBatch, decode_batches
from triokafka.broker_stub.metadata.snapshots import SnapshotFiles, SnapshotId
from triokafka.broker_stub.raft.metadata_log_check import MetadataLogCheck
from triokafka.broker_stub.raft.raft_log_interface import OffsetAndEpoch, PendingFlush
from triokafka.broker_stub.raft.snapshot_file_writer import SnapshotFileWriter
from triokafka.errors import CorruptRecordError, IllegalStateError, KafkaError, KafkaStorageError
from triokafka.records import iter_batches
from triokafka.structs import Buffer, TopicPartition
from triokafka.world import Storage
from triokafka.world.private_storage import PrivateStorage

logger = logging.getLogger(__name__)

PARTITION: Final = TopicPartition(topic_names.CLUSTER_METADATA_TOPIC, 0)
_READ_BYTES: Final = 1 << 20
KEEP_ALL: Final = LogConfig(retention_ms=-1, retention_bytes=-1, segment_ms=2**63 - 1, cleanup_policy=("delete",))
"""The default configuration of a metadata log: one segment without retention."""


class MetadataLogFiles:
    """The metadata log and its snapshots on the disk of one node. See `RaftLog` for what its methods promise.

    ``snapshots`` are the files beside the log; ``begins_after_damage`` says that a damaged part before the newest
    snapshot was removed at this start; ``last_append_ms`` is the time of the last append (-1: none), and
    ``appended_bytes`` the size of all appends since the start.

    Args:
        directory: the data directory that holds the log's folder.
        config: determines when segments are rolled. Only `clean` deletes segments.
        committed: the checkpointed offset up to which all records are known to be committed and on this disk.
        repair: truncate the log at its damage and keep the cut bytes in a file, instead of raising.
        can_vote: this node may be a voter. The log of one that never is has acknowledged nothing: it is repaired, and
            the leader sends the missing records again.

    Raises:
        DamagedLogError: the log is damaged, beyond a torn tail. The message names the file, the position and the
            remedy.
        KafkaStorageError: the disk failed.
    """

    def __init__(
        self,
        storage: Storage,
        directory: str,
        *,
        now_ms: int,
        config: LogConfig = KEEP_ALL,
        committed: int = 0,
        repair: bool = False,
        can_vote: bool = True,
    ) -> None:
        repair = repair or not can_vote
        committed = committed if can_vote else 0
        self.directory = os.path.join(directory, str(PARTITION))
        storage = PrivateStorage(storage)  # SCRAM keys, for instance, are in the records
        self._storage = storage
        self._can_vote = can_vote
        storage.make_dirs_durably(self.directory)
        self.snapshots = SnapshotFiles(storage, self.directory)
        self.snapshots.remove_unfinished()
        self.begins_after_damage = False
        self.last_append_ms = -1
        self.appended_bytes = 0
        self._newest_ms = now_ms
        self._snapshot_ids = self.snapshots.complete_ids()
        self._damaged_snapshots: set[SnapshotId] = set()
        self._sent_snapshots: set[SnapshotId] = set()
        if not self._snapshot_ids and self.snapshots.ids()[:1] == [SnapshotId(0, 0)]:
            raise self.damaged(f"{self.directory}/{SnapshotId(0, 0).file_name} is damaged")
        epochs = self._check(committed=committed, repair=repair)
        snapshot_end = self._snapshot_ids[-1].end_offset if self._snapshot_ids else 0
        try:
            self._log = PartitionLog.open(
                storage,
                self.directory,
                PARTITION,
                config,
                now_ms=now_ms,
                # Snapshots have only committed records: the log was synced up to their end, so recovery need not read
                # that part.
                recovery_point=snapshot_end,
                high_watermark=committed if committed > snapshot_end else 0,
                refuse_damage=not repair,
                replicated=not can_vote,
            )
        except DamagedLogError as error:
            raise self.damaged(str(error)) from error
        self._set_epochs(epochs)

    def _check(self, *, committed: int, repair: bool) -> list[tuple[int, int]]:
        """Check the files of the log, and return its epochs with their start offsets."""
        check = MetadataLogCheck(self._storage, self.directory)
        newest = self.latest_snapshot_id()
        snapshot_end = 0 if newest is None else newest.end_offset
        if check.lacks_segments(snapshot_end):
            what = (
                f"{self.directory} was in use, but all segments of the metadata log ({LOG_SUFFIX}) are missing: the "
                f"records from offset {snapshot_end} on are lost"
            )
            if not repair:
                raise self.damaged(what)
            logger.error("%s. The log continues at that offset, with the records of other nodes of the quorum.", what)
        while (damage := check.find()) is not None:
            if (
                newest is not None
                and damage.offset < newest.end_offset
                and (repair or committed <= newest.end_offset or not damage.is_end)
                and check.begin_at(newest, damage)
            ):
                self._forget_snapshots_before(newest)
                self.begins_after_damage = True
                continue
            if damage.is_end and committed <= damage.offset:
                break  # an interrupted write: the log cuts it when it opens
            if not repair:
                raise self.damaged(str(damage))
            logger.error("%s. The log is cut there.", damage)
            check.cut(damage)
        return check.epochs

    def _set_epochs(self, epochs: Sequence[tuple[int, int]]) -> None:
        """Take the epochs that the batches have: the file with them may be missing, or damaged."""
        known = self._log.leader_epochs
        start, end = self.start_offset, self.end_offset
        found = [(epoch, max(at, start)) for epoch, at in epochs if at < end]
        if known.entries_from(start) != found:
            known.clear()
            for epoch, at in found:
                known.assign(epoch, at)

    def damaged(self, what: str) -> DamagedLogError:
        """Return the error that prevents a start with damaged metadata; its message has the remedy."""
        return DamagedLogError(
            f"{what}. Without these records topics, configurations and quotas would be lost: the broker does not "
            f"start. Restore {self.directory} from a backup, or truncate it: triokafka log repair {self.directory} "
            f"(the cut bytes stay in files that end with {DAMAGED_SUFFIX}, and other nodes of the quorum send the "
            f"records that they have)"
        )

    def reconcile(self, *, alone: bool, now_ms: int) -> None:
        """Make log and snapshots fit together at a start.

        The log may end before the newest snapshot: it is empty because it was removed, or this node fetched the
        snapshot from the leader and stopped before it had emptied the log. The log then begins at the end of the
        snapshot.

        Args:
            alone: this node is the only voter, and so wrote every snapshot itself.

        Raises:
            DamagedLogError: records before the end of a snapshot that this node wrote itself are missing.
            KafkaStorageError: the log of a node that may vote begins after offset 0, and no readable snapshot leads up
                to it; or the disk failed.
        """
        newest = self.latest_snapshot_id()
        start, end = self.start_offset, self.end_offset
        if newest is None or newest.end_offset < start:
            if start > 0 and not self._can_vote:
                logger.error(
                    "%s: the log begins at offset %d, and no snapshot that can be read leads up to it. It is fetched "
                    "from the controllers. Check the disk.",
                    self.directory, start,
                )  # fmt: skip
                self._log.truncate_fully_and_start_at(0, now_ms=now_ms)
            elif start > 0:
                raise KafkaStorageError(
                    f"the metadata log in {self.directory} begins at offset {start}, and no snapshot leads up to it, "
                    f"or none that can be read. Restore {self.directory} from a backup."
                )
            return
        if newest.end_offset <= end:
            return
        if end > start:
            if alone:
                raise self.damaged(
                    f"{self.directory}: the records end at offset {end}, before the snapshot {newest.file_name} does"
                )
            logger.warning("%s: the log ends before the snapshot %s", self.directory, newest.file_name)
        else:
            logger.warning("%s: the log is empty, and starts at the end of the snapshot", self.directory)
        self._log.truncate_fully_and_start_at(newest.end_offset, now_ms=now_ms)

    # Records

    @property
    def start_offset(self) -> int:
        """See `RaftLog`."""
        return self._log.log_start_offset

    @property
    def end_offset(self) -> int:
        """See `RaftLog`."""
        return self._log.log_end_offset

    @property
    def last_epoch(self) -> int:
        """See `RaftLog`."""
        return self._start_epoch if self.end_offset == self.start_offset else max(0, self._log.leader_epochs.latest)

    @property
    def _start_epoch(self) -> int:
        start = self.start_offset
        return next((known.epoch for known in self._snapshot_ids if known.end_offset == start), 0)

    @property
    def flushed_offset(self) -> int:
        """See `RaftLog`."""
        return min(self._log.recovery_point, self.end_offset)

    @property
    def is_usable(self) -> bool:
        """See `RaftLog`."""
        return self._log.usable

    def append(self, batches: Buffer, *, now_ms: int) -> None:
        """See `RaftLog`."""
        expected, epoch = self.end_offset, self.last_epoch
        for info in iter_batches(batches):
            if info.base_offset != expected or info.partition_leader_epoch < epoch:
                raise CorruptRecordError(
                    f"{self.directory}: a batch at offset {info.base_offset} in epoch {info.partition_leader_epoch} "
                    f"cannot follow offset {expected - 1} in epoch {epoch}"
                )
            expected, epoch = info.next_offset, info.partition_leader_epoch
        if expected == self.end_offset:
            raise CorruptRecordError(f"{self.directory}: {len(batches)} bytes have no complete batch")
        self._log.append_as_follower(batches, now_ms=now_ms)
        self.last_append_ms = now_ms
        self._newest_ms = max(self._newest_ms, now_ms)
        self.appended_bytes += len(batches)

    def truncate_to(self, offset: int) -> None:
        """See `RaftLog`."""
        if offset >= self.end_offset:
            return
        if offset < self.start_offset:
            raise IllegalStateError(
                f"{self.directory} cannot be truncated to offset {offset}: it begins at {self.start_offset}, after a "
                f"snapshot, and the records of a snapshot are committed"
            )
        self._log.truncate_to(offset)

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """See `RaftLog`."""
        entries = self._log.leader_epochs.entries_from(self.start_offset)
        end = self.end_offset
        for known, start in reversed(entries):
            if known <= epoch:
                return OffsetAndEpoch(end, known)
            end = start
        return OffsetAndEpoch(self.start_offset, self._start_epoch)

    def read(self, offset: int, max_bytes: int, *, up_to: int | None = None) -> Buffer:
        """See `RaftLog`."""
        records = self._log.read(offset, max_bytes, up_to_offset=up_to).records
        expected, end = -1, 0
        try:
            for info in iter_batches(records, check_crc=True):
                first = expected < 0 and info.base_offset <= offset < info.next_offset
                if not (first or info.base_offset == expected):
                    raise CorruptRecordError(f"a batch has offset {info.base_offset}, expected {max(offset, expected)}")
                expected, end = info.next_offset, info.end
        except CorruptRecordError:
            if not end:
                raise
            return records[:end]  # the next read begins at the damage
        return records

    def read_all(self, *, from_offset: int | None = None, up_to: int | None = None) -> Iterator[LogBatch]:
        """Yield every batch, from ``from_offset`` or the beginning of the log, up to ``up_to`` or its end.

        Raises the errors of `decode_batches`.
        """
        for data in self._raw_batches(self.start_offset if from_offset is None else from_offset, up_to):
            yield from decode_batches(data)

    def _raw_batches(self, offset: int, up_to: int | None = None) -> Iterator[Buffer]:
        while offset < (self.end_offset if up_to is None else up_to):
            data = self.read(offset, _READ_BYTES, up_to=up_to)
            before = offset
            offset = max((info.next_offset for info in iter_batches(data)), default=before)
            if offset == before:
                raise self.damaged(f"{self.directory} cannot be read at offset {offset}")
            yield data

    def begin_flush(self) -> FlushJob | None:
        """See `RaftLog`."""
        return self._log.begin_flush()

    def flushed(self, job: PendingFlush) -> None:
        """See `RaftLog`."""
        assert isinstance(job, FlushJob)
        self._log.flushed(job)

    def bytes_since(self, offset: int) -> int:
        """Return the size of the records from ``offset`` on, in bytes."""
        return self._log.bytes_between(max(offset, self.start_offset), self.end_offset, 1 << 62)

    # Snapshots

    def latest_snapshot_id(self) -> SnapshotId | None:
        """See `RaftLog`. Damaged snapshots do not count."""
        return self._snapshot_ids[-1] if self._snapshot_ids else None

    def earliest_snapshot_id(self) -> SnapshotId | None:
        """See `RaftLog`."""
        return self._snapshot_ids[0] if self._snapshot_ids else None

    def snapshot_size(self, snapshot_id: SnapshotId) -> int | None:
        """See `RaftLog`."""
        if snapshot_id not in self._snapshot_ids or snapshot_id in self._damaged_snapshots:
            return None
        try:
            return self.snapshots.size(snapshot_id)
        except OSError:
            return None

    def read_snapshot(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> Buffer:
        """See `RaftLog`."""
        try:
            if position == 0:
                if snapshot_id in self._sent_snapshots:
                    self._check_snapshot(snapshot_id)  # a node that found it damaged asks for it again
                self._sent_snapshots.add(snapshot_id)
            return self.snapshots.read_part(snapshot_id, position, max_bytes)
        except OSError as error:
            self._damaged_snapshots.add(snapshot_id)
            raise KafkaStorageError(f"{self.directory}/{snapshot_id.file_name}: {error}") from error

    def _check_snapshot(self, snapshot_id: SnapshotId) -> None:
        try:
            self.snapshots.check(snapshot_id)
        except (ValueError, KafkaError) as error:
            self._damaged_snapshots.add(snapshot_id)
            raise CorruptRecordError(f"{self.directory}/{snapshot_id.file_name} is damaged: {error}") from error

    def store_snapshot(self, snapshot_id: SnapshotId) -> SnapshotFileWriter | None:
        """See `RaftLog`."""
        if snapshot_id in self._snapshot_ids and snapshot_id not in self._damaged_snapshots:
            return None
        return SnapshotFileWriter(self._storage, self.directory, snapshot_id, finished=self._snapshot_finished)

    def _snapshot_finished(self, snapshot_id: SnapshotId) -> None:
        # New collections, because this may run in another thread.
        self._snapshot_ids = sorted({*self._snapshot_ids, snapshot_id})
        self._damaged_snapshots = self._damaged_snapshots - {snapshot_id}

    def truncate_to_latest_snapshot(self) -> bool:
        """See `RaftLog`."""
        newest = self.latest_snapshot_id()
        if newest is None or (newest.epoch, newest.end_offset) <= (self.last_epoch, self.end_offset):
            return False
        self._log.truncate_fully_and_start_at(newest.end_offset)
        self._forget_snapshots_before(newest)
        return True

    def delete_before_snapshot(self, snapshot_id: SnapshotId) -> bool:
        """See `RaftLog`."""
        if snapshot_id not in self._snapshot_ids:
            return False
        before = self.start_offset, self._snapshot_ids
        # Advance the log start first: the log must never begin after its oldest snapshot.
        self._log.advance_log_start_offset(min(snapshot_id.end_offset, self.end_offset))
        self._log.apply_retention(self._newest_ms, up_to_offset=self.end_offset)
        self._forget_snapshots_before(snapshot_id)
        return (self.start_offset, self._snapshot_ids) != before

    def _forget_snapshots_before(self, snapshot_id: SnapshotId) -> None:
        for old in self._snapshot_ids:
            if old < snapshot_id:
                try:
                    self.snapshots.remove(old)
                except OSError as error:
                    logger.warning("%s/%s: cannot be removed: %s", self.directory, old.file_name, error)
        self._snapshot_ids = [known for known in self._snapshot_ids if known >= snapshot_id]

    def clean(self, *, max_bytes: int, max_age_ms: int, now_ms: int) -> list[SnapshotId]:
        """Delete old snapshots, and the segments before the oldest remaining one; return the deleted snapshots.

        The newest snapshot always stays. An older one is deleted when log and snapshots exceed ``max_bytes``, or when
        it is older than ``max_age_ms`` (-1 for no limit: ``metadata.max.retention.bytes`` and ``.ms``), unless the
        next one is damaged.

        Raises:
            KafkaStorageError, OSError: the disk failed.
        """
        self._newest_ms = max(self._newest_ms, now_ms)
        dropped: list[SnapshotId] = []
        total = self._log.size + sum(self.snapshots.size(snapshot_id) for snapshot_id in self._snapshot_ids)
        while len(self._snapshot_ids) > 1:
            oldest, following = self._snapshot_ids[:2]
            is_due = 0 <= max_bytes < total or self._is_older(oldest, max_age_ms, now_ms)
            if not is_due or following in self._damaged_snapshots:
                break
            before = self._log.size + self.snapshots.size(oldest)
            if not self.delete_before_snapshot(following):
                break
            total -= before - self._log.size
            dropped.append(oldest)
        return dropped

    def _is_older(self, snapshot_id: SnapshotId, max_age_ms: int, now_ms: int) -> bool:
        if max_age_ms < 0:
            return False
        try:
            written_ms = self.snapshots.read(snapshot_id).batches[0].timestamp_ms
        except (ValueError, IndexError, KafkaError):
            return True  # an unreadable snapshot is useless
        return written_ms + max_age_ms < now_ms

    def close(self) -> None:
        """Close the files."""
        self._log.close()
