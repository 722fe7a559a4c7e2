"""Opening a log's directory: loading segments, and cutting the incomplete end after a crash.

After a clean stop recovery reads only names, sizes, the ends of the last segment and its indexes, and one producer
snapshot. After a crash it reads everything from the recovery point on. Indexes and producer states are rebuilt, and
the log ends at the first bad batch. A torn tail is cut there. Bytes cut because of damage (see ``damage``) are stored
in files beside the segments, and an ERROR names the file.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Sequence
from functools import partial

from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.damage import MAX_JUMP, DamagedLogError, find_valid_batches, keep_file, keep_tail
from triokafka.broker_stub.log.index import CorruptIndexError
from triokafka.broker_stub.log.leader_epochs import LeaderEpochs
from triokafka.broker_stub.log.log_segment import LogSegment
from triokafka.broker_stub.log.open_files import OpenFiles
from triokafka.broker_stub.log.producer_recovery import index_transaction, load_producers
from triokafka.broker_stub.log.producer_snapshots import ProducerSnapshots
from triokafka.broker_stub.log.producer_state import ProducerStates, marker_of
from triokafka.broker_stub.log.segment_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    is_segment_file,
    offset_file_name,
)
from triokafka.broker_stub.log.swap_recovery import complete_swaps
from triokafka.errors import CorruptRecordError
from triokafka.named_tuple import NamedTuple
from triokafka.records.batch import BatchInfo
from triokafka.structs import TopicPartition
from triokafka.world import Storage

logger = logging.getLogger(__name__)

_EPOCH = struct.Struct(">12xiB")
"""The leader epoch and the format in the header of a batch."""


class RecoveredLog(NamedTuple):
    """The content of a log's directory.

    ``segments``: at least one, ascending. ``dropped_bytes``: the number of bytes that recovery cut off.
    ``lost_end``: the offset after the last record that it cut off because of damage; -1 for none.
    """

    segments: list[LogSegment]
    producers: ProducerStates
    dropped_bytes: int
    lost_end: int = -1


class KnownOffsets(NamedTuple):
    """The offsets of a log in the checkpoints: everything below ``recovery_point`` is on disk, everything below
    ``committed`` was committed, and records before ``log_start`` were deleted."""

    recovery_point: int = 0
    committed: int = 0
    log_start: int = 0

    @property
    def end(self) -> int:
        """The minimum end offset of the log."""
        return max(self.recovery_point, self.committed)


def load_log(
    files: OpenFiles,
    directory: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    epochs: LeaderEpochs,
    snapshots: ProducerSnapshots,
    *,
    known: KnownOffsets,
    clean: bool,
    refuse_damage: bool,
    now_ms: int,
) -> RecoveredLog:
    """Load the segments of a log, and repair them unless the last stop was ``clean``.

    Args:
        epochs: receives the epochs of the batches that are read.
        snapshots: recovery removes those of truncated records.
        known: from the checkpoints. An empty directory starts at ``known.log_start``.
        refuse_damage: raise instead of cutting damaged data; a torn tail is cut all the same.

    Raises:
        OSError: the directory cannot be read, or cannot be repaired.
        CorruptRecordError: a batch below the recovery point is damaged.
        DamagedLogError: with ``refuse_damage``; the records are untouched.
    """
    recovery_point, log_start_offset = known.recovery_point, known.log_start
    storage = files.storage
    complete_swaps(storage, directory)
    segments = _open_segments(files, directory, config, now_ms)
    if _starts_behind(segments, log_start_offset) and not refuse_damage:
        _keep_all(storage, directory, topic_partition, segments, log_start_offset)
    if not clean:
        _remove_before(storage, segments, log_start_offset)
    read_from = recovery_point
    # Before the first flush there is no file, and recovery reads everything.
    flushed = clean or (bool(segments) and recovery_point > segments[0].base_offset)
    if flushed and epochs.missing and _has_leader_epochs(segments):
        epochs.lose(f"{epochs.path} is missing")
    if epochs.lost:
        read_from, clean = (segments[0].base_offset if segments else 0), False
    if not segments:
        segments.append(LogSegment(files, directory, log_start_offset, config, new=True, now_ms=now_ms))
    producers, dropped, lost_end = None, 0, -1
    if not clean:
        recovery = LogRecovery(
            storage, directory, topic_partition, segments, epochs, snapshots, known, refuse_damage=refuse_damage
        )
        producers, dropped = recovery.run(read_from, compacts=config.compacts)
        lost_end = recovery.lost_end
    end_offset = segments[-1].reader.next_offset()
    if snapshots.remove_after(end_offset):
        storage.sync_dir(directory)  # new records will get these offsets
    if producers is None:
        producers = load_producers(snapshots, segments, end_offset)
    snapshots.remove_strays({segment.base_offset for segment in segments})
    return RecoveredLog(segments, producers, dropped, lost_end)


def _has_leader_epochs(segments: Sequence[LogSegment]) -> bool:
    """Whether the first batch of the newest segment with records has a leader epoch."""
    for segment in reversed(segments):
        head = segment.file.handle.read_at(0, _EPOCH.size)
        if len(head) == _EPOCH.size:
            epoch, magic = _EPOCH.unpack(head)
            return bool(magic >= 2 and epoch >= 0)
    return False


def _open_segments(files: OpenFiles, directory: str, config: LogConfig, now_ms: int) -> list[LogSegment]:
    storage = files.storage
    names = storage.list_dir(directory)
    bases = sorted(int(name[:20]) for name in names if is_segment_file(name, LOG_SUFFIX))
    known = {offset_file_name(base, suffix) for base in bases for suffix in SEGMENT_SUFFIXES}
    for name in names:
        if name not in known and any(is_segment_file(name, suffix) for suffix in SEGMENT_SUFFIXES):
            path = f"{directory}/{name}"
            if (
                name.endswith(INDEX_SUFFIX)
                and bases
                and bases[0] < int(name[:20])
                and storage.read_file(path).strip(b"\0")
            ):
                logger.warning(
                    "%s has entries, but its segment is missing: it was removed, or a crash came while compaction "
                    "replaced it. The index is removed.",
                    path,
                )
            storage.remove(path)
    segments = [LogSegment(files, directory, base, config, new=False, now_ms=now_ms) for base in bases]
    _remove_leftover_segments(storage, segments)
    return segments


def _remove_leftover_segments(storage: Storage, segments: list[LogSegment]) -> None:
    """Remove remains of failed rolls: empty files whose offsets the previous segment contains."""
    index = 1
    while index < len(segments):
        segment = segments[index]
        if segment.size or not _goes_past(segments[index - 1], segment.base_offset):
            index += 1
        else:
            _remove(storage, segment)
            del segments[index]


def _remove_before(storage: Storage, segments: list[LogSegment], start_offset: int) -> None:
    """Remove the segments before the one with ``start_offset``.

    Retention may have removed some of them. The others have transactions whose markers are gone, and their gaps would
    look like the end of the log.
    """
    kept = max((i for i, segment in enumerate(segments) if segment.base_offset <= start_offset), default=0)
    for segment in segments[:kept]:
        _remove(storage, segment)
    del segments[:kept]


def _starts_behind(segments: Sequence[LogSegment], start_offset: int) -> bool:
    """Return whether a log with records ends before its start offset in the checkpoint."""
    if not segments or start_offset <= segments[-1].base_offset or not any(segment.size for segment in segments):
        return False
    try:
        return segments[-1].reader.next_offset() < start_offset
    except CorruptRecordError:
        return False  # recovery will find the end


def _keep_all(
    storage: Storage, directory: str, topic_partition: TopicPartition, segments: list[LogSegment], start_offset: int
) -> None:
    """Move all segments aside: the checkpointed start offset is beyond the end of the log."""
    first, end = segments[0].base_offset, segments[-1].reader.next_offset()
    kept = [_keep(storage, segment) for segment in segments if segment.size]
    logger.error(
        "%s: the log in %s ends at offset %d, but its start offset is %d (log-start-offset-checkpoint). "
        "Offsets %d to %d are lost or were deleted; their segments are kept as %s. Remove them when they are not "
        "needed.",
        topic_partition,
        directory,
        end,
        start_offset,
        first,
        start_offset - 1,
        ", ".join(kept),
    )
    for segment in segments:
        _remove(storage, segment)
    segments.clear()
    storage.sync_dir(directory)


def _keep(storage: Storage, segment: LogSegment) -> str:
    """Move the records of a segment aside, and remove its indexes; return the path of the file with the records."""
    segment.close()
    kept = keep_file(storage, segment.file.path(LOG_SUFFIX))
    _remove(storage, segment)
    return kept


def _goes_past(segment: LogSegment, offset: int) -> bool:
    try:
        return segment.reader.next_offset() > offset
    except CorruptRecordError:
        return False  # recovery will handle it


def _remove(storage: Storage, segment: LogSegment) -> None:
    segment.close()
    for suffix in SEGMENT_SUFFIXES:
        if storage.exists(segment.file.path(suffix)):
            storage.remove(segment.file.path(suffix))


class LogRecovery:
    """Recovers one log that was not closed cleanly."""

    def __init__(
        self,
        storage: Storage,
        directory: str,
        topic_partition: TopicPartition,
        segments: list[LogSegment],
        epochs: LeaderEpochs,
        snapshots: ProducerSnapshots,
        known: KnownOffsets,
        *,
        refuse_damage: bool,
    ) -> None:
        self._storage = storage
        self._directory = directory
        self._topic_partition = topic_partition
        self._segments = segments
        self._epochs = epochs
        self._snapshots = snapshots
        self._known = known
        self._refuse_damage = refuse_damage
        self._producers = ProducerStates()
        self._expected = 0
        self._segment = segments[0]
        self._has_gaps = False  # whether the log has been compacted
        self.lost_end = -1

    def run(self, read_from: int, *, compacts: bool) -> tuple[ProducerStates, int]:
        """Read from an offset on, and remove everything from the first bad batch on.

        Returns the producer states and the number of removed bytes.
        """
        segments = self._segments
        self._has_gaps = compacts
        position = max((i for i, segment in enumerate(segments) if segment.base_offset <= read_from), default=0)
        if position and not segments[position].size:
            position -= 1  # check that the previous segment reaches the empty one
        first, dropped = position, 0
        while position < len(segments) and not dropped:
            segment = self._segment = segments[position]
            # Only compaction leaves gaps, maybe before the topic's policy was changed. Any other gap means that the end
            # of the previous segment was lost, and the following records do not continue the log.
            gaps = self._has_gaps or segment.base_offset <= self._known.recovery_point
            if position > first and (
                segment.base_offset < self._expected or (segment.base_offset > self._expected and not gaps)
            ):
                break
            if segment.reader.indexed_bytes > segment.size:
                logger.error(
                    "%s: the index of %s goes on to byte %d, but the segment ends at byte %d: records are lost",
                    self._topic_partition,
                    segment.file.path(LOG_SUFFIX),
                    segment.reader.indexed_bytes,
                    segment.size,
                )
            trusted = segment.indexes.trusted_part(read_from) if position == first else None
            self._expected = segment.base_offset if trusted is None else trusted.end_offset
            if position == first:
                self._producers = load_producers(self._snapshots, segments, self._expected)
                # From here on the epochs come from the batches. The file may list others, which an earlier crash has
                # removed.
                self._epochs.truncate_to(self._expected)
            dropped = segment.recover(self._replay, after=trusted, before_cut=partial(self._judge, position))
            position += 1
        if not dropped and any(segment.size for segment in segments[position:]):
            self._judge_gap(position)
        for segment in segments[position:]:
            dropped += segment.size
            if segment.size:
                logger.error(
                    "%s: segment %s is kept as %s", self._topic_partition, segment, _keep(self._storage, segment)
                )
            else:
                _remove(self._storage, segment)
        del segments[position:]
        # Also for files that a dead process has removed: otherwise another crash restores them behind newer records.
        self._storage.sync_dir(self._directory)
        return self._producers, dropped

    def _judge(self, index: int, position: int) -> None:
        """Segment ``index`` has a bad batch at ``position``: store the following bytes, unless they are a torn tail.

        Raises:
            DamagedLogError: it is damage, and ``refuse_damage`` is set.
        """
        segment = self._segments[index]
        path, size = segment.file.path(LOG_SUFFIX), segment.size
        found = find_valid_batches(segment.file.handle, position, size, self._expected)
        later = [behind for behind in self._segments[index + 1 :] if behind.size]
        ends = self._end_of_loss(found.end_offset, later)
        if not found.batches and not later and self._expected >= self._known.end:
            logger.warning(
                "%s: the last write is incomplete: cut %d bytes at byte %d of %s; the log ends at offset %d",
                self._topic_partition,
                size - position,
                position,
                path,
                self._expected,
            )
            return
        what = (
            f"{self._topic_partition}: {path} is damaged at byte {position}, offset {self._expected}; "
            f"{found.batches} valid batches with {found.records} records follow in it, and {len(later)} later segments"
        )
        if self._refuse_damage:
            raise DamagedLogError(what)
        kept = keep_tail(self._storage, path, segment.file.handle, position, size)
        self.lost_end = ends
        logger.error(
            "%s. Offsets %d to %d are lost; %d bytes of this segment are kept in %s.",
            what,
            self._expected,
            ends - 1,
            size - position,
            kept,
        )

    def _judge_gap(self, index: int) -> None:
        """Segment ``index`` does not continue the previous one. Raises `DamagedLogError` if damage is refused."""
        later = self._segments[index:]
        ends = self._end_of_loss(-1, later)
        what = (
            f"{self._topic_partition}: the records before {later[0].file.path(LOG_SUFFIX)} end at offset "
            f"{self._expected}: segments are missing or cut between the two"
        )
        if self._refuse_damage:
            raise DamagedLogError(what)
        self.lost_end = ends
        logger.error("%s. Offsets %d to %d are lost.", what, self._expected, ends - 1)

    def _end_of_loss(self, found_end: int, later: Sequence[LogSegment]) -> int:
        """Return the offset after the last lost record, as far as valid batches and checkpoints show."""
        ends = [self._expected, found_end, self._known.end]
        for segment in later:
            try:
                ends.append(segment.reader.next_offset())
            except CorruptRecordError:
                ends.append(segment.base_offset)
        return max(end for end in ends if end - self._expected < MAX_JUMP)

    def _replay(self, batch: BatchInfo, data: memoryview) -> None:
        self._epochs.assign(batch.partition_leader_epoch, batch.base_offset)
        if batch.base_offset > self._expected:
            self._has_gaps = True
        self._expected = batch.next_offset
        try:
            completed = self._producers.replay(batch, marker_of(batch, data))
            if completed is not None:
                index_transaction(self._segment, completed)
        except CorruptIndexError as error:
            raise CorruptRecordError(str(error)) from error
