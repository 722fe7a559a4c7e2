"""One pass of the cleaner over one log, in steps.

A pass reads the dirty part of the log once and records the newest offset of every key. Then it rewrites the segments
from the beginning of the log without superseded records. If the keys do not fit into memory, the pass ends within the
dirty part and the next pass continues there. The pass itself never changes the log: its caller swaps the segments.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from triokafka.broker_stub.log.cleaner.batch_filter import BatchFilter, FilterCounts, LastOfProducer, marker_kind
from triokafka.broker_stub.log.cleaner.offset_map import OffsetMap, offset_map
from triokafka.broker_stub.log.cleaner.transactions import CleanedTransactions
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.log_segment import LogSegment
from triokafka.broker_stub.log.open_files import OpenFiles
from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.broker_stub.log.segment_names import SEGMENT_SUFFIXES
from triokafka.named_tuple import NamedTuple
from triokafka.records import iter_batches
from triokafka.records.batch import HEADER_SIZE, BatchInfo
from triokafka.records.compression import CODEC_IDS
from triokafka.records.rewritable_batch import RewritableBatch
from triokafka.world import Storage

_MAX_OFFSET_SPAN: Final = 2**31 - 1  # index entries have 31-bit offsets relative to the segment's base offset
_TIME_ENTRY: Final = 12
# About a millisecond of work: the cleaner thread shares the interpreter with the event loop and may delay it that long.
_STEP_RECORDS: Final = 512


class CleanerLimits(NamedTuple):
    """Limits of one pass: memory for the offset map in bytes, its load factor, and the bytes of records read per
    step.
    """

    map_bytes: int = 128 * 1024 * 1024
    load_factor: float = 0.9
    step_bytes: int = 256 * 1024


class CleanerProgress(NamedTuple):
    """The bytes that a step read and wrote, for the throttle."""

    read: int
    written: int


class Replacement(NamedTuple):
    """A complete, synced segment ``new`` that the caller swaps in for ``old`` before the next step."""

    old: Sequence[LogSegment]
    new: LogSegment


@dataclass(slots=True)
class CleaningStats:
    """Statistics of a pass. ``end_offset``: all records below it are clean once the pass has finished."""

    end_offset: int = -1
    map_utilization: float = 0.0
    map_bytes_read: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    segments_before: int = 0
    segments_after: int = 0
    counts: FilterCounts = field(default_factory=FilterCounts)

    @property
    def summary(self) -> str:
        """The statistics as one line for the log."""
        counts = self.counts
        return (
            f"kept {counts.records_kept} of {counts.records_read} records, {self.bytes_written} of {self.bytes_read} "
            f"bytes, {self.segments_after} of {self.segments_before} segments; {self.map_bytes_read} bytes were dirty; "
            f"the offset map used {100 * self.map_utilization:.0f} % of its memory"
        )


class CleanerPass:
    """One pass over one log. Create it in the log's thread; `steps` may run in another thread.

    ``stats`` shows its progress.

    Args:
        storage: the storage of the log; the pass opens the log's files separately.
        first_dirty: the first dirty offset; records below it were cleaned before.
        end: the base offset of the first segment that must not be cleaned.
        salt: unpredictable bytes, see `OffsetMap`.
    """

    def __init__(
        self,
        storage: Storage,
        log: PartitionLog,
        *,
        first_dirty: int,
        end: int,
        now_ms: int,
        limits: CleanerLimits | None = None,
        salt: bytes = b"",
    ) -> None:
        self.stats = CleaningStats()
        self._storage = storage
        self._log = log
        self._config = log.config
        self._now_ms = now_ms
        self._limits = limits or CleanerLimits()
        self._salt = salt
        self._first_dirty = first_dirty
        self._end = end
        bases = [segment.base_offset for segment in log.segments]
        self._ends = dict(pairwise([*bases, log.log_end_offset]))  # end offset by base offset
        self._segments = [segment for segment in log.segments if segment.base_offset < end]
        self._producers = _last_of_producers(log)
        first = self._segments[0].base_offset if self._segments else first_dirty
        self._aborted = log.aborted_transactions(first, end) if self._segments else []

    def steps(self) -> Generator[CleanerProgress | Replacement, None, None]:
        """Run the pass, one step per iteration. Closing the iterator early removes the unfinished segment.

        Raises:
            CorruptRecordError: a batch is damaged; its segment was not replaced.
            OSError, KafkaStorageError: the disk failed, or the log was closed or deleted.
        """
        offsets = yield from self._map_keys()
        self.stats.map_utilization = offsets.utilization
        if self.stats.end_offset < 0:
            self.stats.end_offset = max(offsets.latest_offset + 1, self._first_dirty)
        end = self.stats.end_offset
        if end <= self._first_dirty or not self.stats.map_bytes_read:
            return
        transactions = CleanedTransactions(self._aborted)
        batch_filter = BatchFilter(
            offsets,
            transactions,
            self._producers,
            now_ms=self._now_ms,
            delete_retention_ms=self._config.delete_retention_ms,
            codec=None if self._config.codec is None else CODEC_IDS[self._config.codec],
            level=self._config.compression_level,
        )
        self.stats.counts = batch_filter.counts
        sources = [segment for segment in self._segments if segment.base_offset < end]
        for group in group_segments(sources, self._ends, self._config):
            yield from self._clean(group, batch_filter, transactions, end)

    def _map_keys(self) -> Generator[CleanerProgress, None, OffsetMap]:
        """Map the newest offset of every key from the first dirty offset on, until the map is full."""
        start = self._first_dirty
        dirty = [segment for segment in self._segments if self._ends[segment.base_offset] > start]
        offsets = offset_map(
            self._limits.map_bytes,
            self._limits.load_factor,
            expected=max(0, self._ends[dirty[-1].base_offset] - start) if dirty else 0,
            salt=self._salt,
        )
        # Transactions that ended earlier have neither records nor a marker in the dirty part.
        transactions = CleanedTransactions([entry for entry in self._aborted if entry.last_offset >= start])
        files = OpenFiles(self._storage)
        try:
            for segment in dirty:
                for size, batches in self._read(segment.reopened(files), start):
                    self.stats.map_bytes_read += size
                    for info, data in batches:
                        if not _map_batch(offsets, transactions, info, data, start):
                            return offsets
                    yield CleanerProgress(size, 0)
            # The end of the range, not of its last batch: otherwise a gap at the end of a segment would stay dirty
            # forever.
            self.stats.end_offset = max(self._end, self._first_dirty)
        finally:
            files.close_all()
        return offsets

    def _clean(
        self, group: list[LogSegment], batch_filter: BatchFilter, transactions: CleanedTransactions, end: int
    ) -> Generator[CleanerProgress | Replacement, None, None]:
        """Write a group of segments as one, and yield the replacement."""
        files = OpenFiles(self._storage)
        stats = self.stats
        target = self._log.new_cleaned_segment(group[0].base_offset, files, now_ms=self._now_ms)
        group_end = min(self._ends[group[-1].base_offset], end)
        # Recovery after a crash finds the segments after a group by the group's end offset.
        ends = {end, group_end} if len(group) > 1 else {end}
        changed = len(group) > 1
        handed_out = False
        try:
            for segment in group:
                for size, batches in self._read(segment.reopened(files), segment.base_offset):
                    out = bytearray()
                    for info, data in batches:
                        kept = batch_filter.filter(info, data, keep_last_offset=info.next_offset in ends)
                        changed = changed or kept is not data
                        if kept is not None:
                            out += kept
                    if out:
                        target.append(list(iter_batches(out)), out)
                    stats.bytes_read += size
                    stats.bytes_written += len(out)
                    yield CleanerProgress(size, len(out))
            stats.segments_before += len(group)
            stats.segments_after += 1
            for transaction in transactions.take_still_aborted():
                target.indexes.transactions.append(transaction)
            if changed:
                target.seal()
                target.keep_age_of(group[-1])
                target.sync()
                handed_out = True
                yield Replacement(group, target)
        finally:
            files.close_all()
            if not handed_out:
                _remove(self._storage, target)

    def _read(self, segment: LogSegment, from_offset: int) -> Iterator[tuple[int, list[tuple[BatchInfo, memoryview]]]]:
        """Read the batches of a segment from ``from_offset`` on in groups, each with its size in bytes."""
        position = 0
        if from_offset > segment.base_offset:
            place = segment.reader.find(from_offset)
            position = segment.size if place is None else place.position
        size = records = 0
        batches: list[tuple[BatchInfo, memoryview]] = []
        for info, data in segment.file.batches(position, check_crc=True):
            batches.append((info._replace(position=0), data))
            size += len(data)
            records += info.record_count
            if size >= self._limits.step_bytes or records >= _STEP_RECORDS:
                yield size, batches
                size, records, batches = 0, 0, []
        if batches:
            yield size, batches


def group_segments(
    segments: Sequence[LogSegment], ends: Mapping[int, int], config: LogConfig
) -> list[list[LogSegment]]:
    """Group adjacent segments that fit into one segment by bytes, index entries, and offset range.

    Args:
        segments: sealed segments, ascending.
        ends: the end offset of each segment by base offset.
    """
    groups: list[list[LogSegment]] = []
    size = index_bytes = 0
    for segment in segments:
        entries = _index_bytes(segment, config)
        if (
            groups
            and size + segment.size <= config.segment_bytes
            and index_bytes + entries <= config.segment_index_bytes
            and (not segment.size or ends[segment.base_offset] - 1 - groups[-1][0].base_offset <= _MAX_OFFSET_SPAN)
        ):
            groups[-1].append(segment)
            size, index_bytes = size + segment.size, index_bytes + entries
        else:
            groups.append([segment])
            size, index_bytes = segment.size, entries
    return groups


def _index_bytes(segment: LogSegment, config: LogConfig) -> int:
    """Return an upper bound for the index size of a segment, from ``index.interval.bytes``, without reading the
    index.
    """
    return (segment.size // max(config.index_interval_bytes, HEADER_SIZE) + 1) * _TIME_ENTRY


def _map_batch(
    offsets: OffsetMap, transactions: CleanedTransactions, info: BatchInfo, data: memoryview, start: int
) -> bool:
    """Put the keys of a batch into the map; return False when the map is full."""
    if info.is_control:
        transactions.read_marker(info, marker_kind(RewritableBatch(data, info).records))
    elif not transactions.read_data(info) and info.record_count:
        put = offsets.put
        for record in RewritableBatch(data, info).records:
            if record.key is not None and record.offset >= start:
                if not put(record.key, record.offset):
                    return False
                # Advance with each record, so that even the smallest map makes progress.
                offsets.latest_offset = record.offset
    offsets.latest_offset = max(offsets.latest_offset, info.last_offset)
    return True


def _last_of_producers(log: PartitionLog) -> dict[int, LastOfProducer]:
    return {
        state.producer_id: LastOfProducer(state.batches[-1].last_offset if state.batches else None, state.epoch)
        for state in log.producers.all()
    }


def _remove(storage: Storage, segment: LogSegment) -> None:
    """Remove an unused segment. The next opening of the log removes files that a failing disk leaves behind."""
    for suffix in SEGMENT_SUFFIXES:
        try:
            if storage.exists(segment.file.path(suffix)):
                storage.remove(segment.file.path(suffix))
        except OSError:
            continue
