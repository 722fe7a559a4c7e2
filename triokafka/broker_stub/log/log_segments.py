"""The segments of one log as one sequence of batches: appending, look-up, and truncation at both ends.

`PartitionLog` handles producers, commitment and visibility. Disk errors are `OSError`; after one, the sequence is still
consistent, but may be longer than requested.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from triokafka.broker_stub.log.batch_positions import BatchPosition
from triokafka.broker_stub.log.change_signal import ChangeSignal
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.log_segment import LogSegment
from triokafka.broker_stub.log.open_files import OpenFiles
from triokafka.broker_stub.log.segment_names import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    is_segment_file,
    offset_file_name,
)
from triokafka.broker_stub.log.segment_reader import SegmentRead
from triokafka.broker_stub.log.swap_recovery import remove_unfinished
from triokafka.errors import CorruptRecordError, IllegalStateError
from triokafka.records.batch import BatchInfo
from triokafka.structs import Buffer

_MAX_HINTS: Final = 64  # batches that are likely to be read next


class LogSegments:
    """At least one segment, ascending; the last one, ``active``, is written to.

    ``end_offset`` is the offset after the last batch; `end_at` sets it. ``changes`` is the log's signal.
    """

    def __init__(self, files: OpenFiles, directory: str, config: LogConfig, segments: list[LogSegment]) -> None:
        self._files = files
        self._directory = directory
        self._config = config
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._hints: dict[int, tuple[int, BatchPosition]] = {}  # by offset: base offset of the segment, and the batch
        self._to_delete: list[tuple[int, list[str]]] = []  # time of removal, and renamed files
        self._closed = False
        self.changes = ChangeSignal()
        self.end_offset = self.active.reader.next_offset()

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(tuple(self._segments))

    def __getitem__(self, index: int) -> LogSegment:
        return self._segments[index]

    @property
    def active(self) -> LogSegment:
        """The segment that takes new batches."""
        return self._segments[-1]

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return sum(segment.size for segment in self._segments)

    def end_of(self, index: int) -> int:
        """Return the end offset of the segment ``index``, where the next one begins."""
        return self._bases[index + 1] if index + 1 < len(self._bases) else self.end_offset

    def update_config(self, config: LogConfig) -> None:
        """Replace the configuration."""
        self._config = config
        for segment in self._segments:
            segment.use_config(config)

    # -- adding

    def append(self, batches: Sequence[BatchInfo], data: Buffer) -> None:
        """Append ``data``, the bytes of ``batches``, to the active segment; append nothing on failure."""
        segment = self._segments[-1]
        position = segment.file.size
        segment.append(batches, data)
        self.end_offset = batches[-1].next_offset
        self.changes.notify()
        first = batches[0]
        self._hint(segment, BatchPosition(position, first.size, first.base_offset, first.last_offset))

    def end_at(self, offset: int) -> None:
        """Set ``end_offset``."""
        self.end_offset = offset
        self.changes.notify()

    def add(self, base_offset: int, now_ms: int) -> None:
        segment = LogSegment(self._files, self._directory, base_offset, self._config, new=True, now_ms=now_ms)
        self._segments.append(segment)
        self._bases.append(base_offset)

    def begin_sync(self, *, sealed_only: bool) -> list[Callable[[], None]]:
        """Return functions that sync the segments with unsynced data; they may run in another thread."""
        segments = [s for s in self._segments if s.unsynced and not (sealed_only and s is self.active)]
        for segment in segments:
            segment.indexes.write()  # all of them first: this may fail, and then none counts as synced
        return [segment.begin_sync() for segment in segments]

    # -- finding

    def from_offset(self, offset: int) -> Sequence[LogSegment]:
        """Return the segment whose range includes ``offset``, and all later ones."""
        return self._segments[max(0, bisect_right(self._bases, offset) - 1) :]

    def read(
        self, offset: int, max_bytes: int, *, up_to_offset: int, at_least_one: bool, to_send: bool = False
    ) -> SegmentRead | None:
        """Read complete batches below ``up_to_offset`` from one segment; None when there are none.

        Segments without records at or above ``offset`` are skipped: compaction emptied them. For ``to_send``, see
        `LogSegment.read`.

        Raises:
            CorruptRecordError: a header is damaged, or the end of the active segment is missing.
        """
        first = max(0, bisect_right(self._bases, offset) - 1)
        for index in range(first, len(self._segments)):
            segment = self._segments[index]
            if offset >= up_to_offset or segment.base_offset >= up_to_offset:
                return None
            found = segment.reader.read(
                offset,
                max_bytes,
                up_to_offset=up_to_offset if up_to_offset < self.end_offset else None,
                at_least_one=at_least_one,
                hint=self._hinted(offset, segment),
                to_send=to_send,
                ends_at=self.end_of(index),
            )
            if found is not None:
                if found.next_batch is not None:
                    self._hint(segment, found.next_batch)
                return found
            if segment is self.active and segment.file.ends_torn:
                raise CorruptRecordError(f"{segment!r} ends before offset {self.end_offset}: its end was cut off")
        return None

    def in_one(self, start_offset: int, end_offset: int) -> bool:
        """Whether two offsets belong to the same segment."""
        return bisect_right(self._bases, start_offset) == bisect_right(self._bases, end_offset)

    def bytes_between(self, start_offset: int, end_offset: int, limit: int) -> int:
        """Return the size of the batches from ``start_offset`` up to ``end_offset``, at most ``limit``."""
        total = 0
        for segment in self.from_offset(start_offset):
            if segment.base_offset >= end_offset or total >= limit:
                break
            first = self._hinted(start_offset, segment) or segment.reader.find(start_offset)
            start = first.position if first is not None else segment.size
            last = segment.reader.find(end_offset) if end_offset < self.end_offset else None
            total += (last.position if last is not None else segment.size) - start
        return max(0, min(total, limit))

    def batch_start(self, offset: int) -> int:
        """Return the base offset of the batch that contains ``offset``; ``offset`` itself when it is between
        batches.
        """
        place = self.from_offset(offset)[0].reader.find(offset)
        return offset if place is None else min(offset, place.base_offset)

    def _hint(self, segment: LogSegment, batch: BatchPosition) -> None:
        if len(self._hints) >= _MAX_HINTS:
            del self._hints[next(iter(self._hints))]
        self._hints[batch.base_offset] = (segment.base_offset, batch)

    def _hinted(self, offset: int, segment: LogSegment) -> BatchPosition | None:
        base, batch = self._hints.get(offset, (-1, None))
        return batch if base == segment.base_offset else None

    # -- cutting

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Drop the batch that contains ``offset`` and all later ones, durably except for the directory."""
        self._hints.clear()
        try:
            if self.active.base_offset > offset:
                while self.active.base_offset > offset:
                    self._remove_files(self.active.mark_deleted())
                    self._segments.pop()
                    self._bases.pop()
                self._files.storage.sync_dir(self._directory)  # otherwise a crash may leave later segments behind a gap
            self._remove_strays()
            self.active.truncate_to(offset, now_ms)
            self.active.sync()
        except OSError:
            self._find_end_anyway()
            raise
        self.end_at(self.active.reader.next_offset())

    def start_empty(self, offset: int, now_ms: int) -> None:
        """Drop all segments, and start a new one at ``offset``."""
        self._hints.clear()
        doomed, self._segments, self._bases = self._segments, [], []
        removed: list[str] = []
        try:
            while doomed:
                removed += doomed[-1].mark_deleted()
                doomed.pop()
            self._remove_strays()
            sync_names = partial(self._files.storage.sync_dir, self._directory)
            sync_names()  # otherwise a crash may leave old records before the new start
            self.add(offset, now_ms)
            self.active.sync()
            sync_names()  # otherwise a crash may leave no segment at all, which looks like damage
            self._remove_files(removed)
        except OSError:
            if doomed:
                self._segments, self._bases = doomed, [segment.base_offset for segment in doomed]
                self._find_end_anyway()
            raise
        self.end_at(offset)

    def _find_end_anyway(self) -> None:
        """Recompute ``end_offset`` after an error; a further error must not hide the first one."""
        try:
            self.end_at(self.active.reader.next_offset())
        except (OSError, CorruptRecordError):
            pass  # the log is offline until it is reopened

    def _remove_strays(self) -> None:
        """Remove the remains of a failed roll: a segment beyond the new end would count as the end of the log."""
        storage = self._files.storage
        known = {offset_file_name(base, LOG_SUFFIX) for base in self._bases}
        for name in storage.list_dir(self._directory):
            if is_segment_file(name, LOG_SUFFIX) and name not in known:
                storage.remove(f"{self._directory}/{name}")

    def drop_oldest(self, count: int, *, remove_at_ms: int, one_by_one: bool) -> list[int]:
        """Drop the oldest segments, and return their base offsets; `remove_files_to_delete` removes their files.

        Args:
            one_by_one: make the removal of each segment durable before the next.
        """
        dropped: list[int] = []
        for _ in range(count):
            if dropped and one_by_one:
                self._files.storage.sync_dir(self._directory)
            self._to_delete.append((remove_at_ms, self._segments[0].mark_deleted()))
            dropped.append(self._bases[0])
            del self._segments[0], self._bases[0]
        return dropped

    def replacing(
        self, old: Sequence[LogSegment], new: Sequence[LogSegment], *, remove_at_ms: int
    ) -> Iterator[Callable[[], None]]:
        """Replace ``old`` by ``new``, whose files end with `CLEANED_SUFFIX`.

        Yields the slow parts, which the caller may run in another thread. The sequence is consistent at each of them,
        first with the old segments, then with the new ones. Closing the iterator early keeps the old segments, or
        finishes the replacement. After a crash, recovery does the same (see `swap_recovery`). After a disk error, the
        log must be reopened before the sequence is used.

        Raises:
            IllegalStateError: ``old`` are not adjacent in the log, or include the active segment; or ``new`` do not fit
                in between. Nothing has changed.
        """
        storage = self._files.storage
        sync_names = partial(storage.sync_dir, self._directory)
        bases = [segment.base_offset for segment in new]
        self._check_replacement(old, bases)
        remove_unfinished(storage, self._directory, keep=bases)
        for segment in new:
            segment.seal()
            yield segment.begin_sync() if segment.unsynced else sync_names
        try:
            # The lowest base offset last: recovery ignores replacements at and above any `.cleaned` file.
            for segment in reversed(new):
                segment.adopt(self._files)
                segment.change_suffix(SWAP_SUFFIX)
                yield sync_names
            first = self._check_replacement(old, bases)
        except (GeneratorExit, IllegalStateError):
            remove_unfinished(storage, self._directory, keep=())
            raise
        self._hints.clear()
        self._segments[first : first + len(old)] = new
        self._bases[first : first + len(old)] = bases
        for segment in old:
            self._to_delete.append((remove_at_ms, segment.mark_deleted()))
        rest = self._take_names(new, sync_names)
        try:
            yield from rest
        except GeneratorExit:
            for sync in rest:
                sync()
            raise

    def _check_replacement(self, old: Sequence[LogSegment], bases: list[int]) -> int:
        """Check a replacement; return the index of the first of ``old``."""
        if self._closed:  # its folder may have another log now
            raise IllegalStateError(f"{self._directory}: the log was closed")
        first = self._bases.index(old[0].base_offset) if old and old[0].base_offset in self._bases else -1
        end = first + len(old)
        if first < 0 or end >= len(self._segments) or list(old) != self._segments[first:end]:
            raise IllegalStateError(f"{self._directory}: the segments to replace are not, or no longer, in the log")
        if not bases or bases[0] != old[0].base_offset or bases != sorted(set(bases)) or bases[-1] >= self._bases[end]:
            raise IllegalStateError(f"{self._directory}: segments at {bases} cannot replace those from {old[0]!r} on")
        return first

    @staticmethod
    def _take_names(new: Sequence[LogSegment], sync_names: Callable[[], None]) -> Iterator[Callable[[], None]]:
        """Remove the suffix, file by file: the remaining ``.swap`` files identify the segments that they replace."""
        yield sync_names
        for segment in new:
            for _ in segment.take_name():
                yield sync_names

    def new_cleaned(self, base_offset: int, files: OpenFiles, now_ms: int) -> LogSegment:
        """Create an empty segment that will replace others; remains with its name are overwritten."""
        for suffix in SEGMENT_SUFFIXES:
            path = f"{self._directory}/{offset_file_name(base_offset, suffix)}{CLEANED_SUFFIX}"
            if files.storage.exists(path):
                files.storage.remove(path)
        return LogSegment(
            files, self._directory, base_offset, self._config, new=True, now_ms=now_ms, suffix=CLEANED_SUFFIX
        )

    def remove_files_to_delete(self, now_ms: int) -> None:
        """Remove the renamed files that are due."""
        for entry in list(self._to_delete):
            if self._is_due(entry[0], now_ms):
                self._remove_files(entry[1])
                self._to_delete.remove(entry)

    def take_files_to_delete(self, now_ms: int) -> list[str]:
        """As `remove_files_to_delete`, but return the files: the caller removes them, for example in a thread."""
        due = [path for at, paths in self._to_delete if self._is_due(at, now_ms) for path in paths]
        self._to_delete = [entry for entry in self._to_delete if not self._is_due(entry[0], now_ms)]
        return due

    def _is_due(self, remove_at_ms: int, now_ms: int) -> bool:
        """Whether the time has come; also when it is farther away than the delay, because the clock moved back."""
        return not now_ms < remove_at_ms <= now_ms + self._config.file_delete_delay_ms

    def _remove_files(self, paths: list[str]) -> None:
        while paths:
            if self._files.storage.exists(paths[-1]):  # otherwise a later file with the same name replaced it
                self._files.storage.remove(paths[-1])
            paths.pop()

    # -- end of life

    def adopt(self, files: OpenFiles) -> None:
        """Use another set of open files from now on."""
        self._files = files
        for segment in self._segments:
            segment.adopt(files)

    def close(self) -> None:
        """Close the files without writing."""
        self._closed = True
        for segment in self._segments:
            segment.close()
