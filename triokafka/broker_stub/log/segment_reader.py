"""Reading and searching one segment of a log: a ``.log`` file of record batches with its indexes."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator
from typing import Final

from triokafka.broker_stub.log.batch_positions import (
    BatchPosition,
    OffsetOrderError,
    ReadableFile,
    TornBatchError,
    scan_batches,
)
from triokafka.broker_stub.log.index import CorruptIndexError
from triokafka.broker_stub.log.page_cache import PageCacheFile, require_in_page_cache
from triokafka.broker_stub.log.segment_file import SegmentFile
from triokafka.broker_stub.log.segment_indexes import SegmentIndexes
from triokafka.errors import CorruptRecordError
from triokafka.named_tuple import NamedTuple
from triokafka.records.batch import LOG_OVERHEAD, BatchInfo
from triokafka.structs import Buffer
from triokafka.world import FileSlice

_OVERHEAD: Final = struct.Struct(">qi")
_SLICE_BYTES: Final = 16_384  # from this size on, sending from the file costs less than a copy


class SegmentRead(NamedTuple):
    """Complete batches of a segment from ``position`` to ``next_position``.

    ``next_offset`` is the offset after the last batch, or None when it was not read.
    """

    position: int
    data: Buffer | FileSlice
    next_position: int
    next_offset: int | None


class SegmentReader:
    """Finds and reads batches of a segment by offset. It never changes the ``.log`` file."""

    def __init__(self, file: SegmentFile, indexes: SegmentIndexes) -> None:
        self._file = file
        self._indexes = indexes

    def find(self, offset: int) -> BatchPosition | None:
        """Find the first batch whose last offset is at or above ``offset``, or None.

        Raises:
            CorruptRecordError: a header before that batch is damaged.
        """
        found = self._find(offset, self._file.handle)
        return None if found is None else found[0]

    def _find(self, offset: int, file: ReadableFile) -> tuple[BatchPosition, BatchPosition | None] | None:
        """Find that batch and the one after it, if its header is complete and valid."""
        indexed, position = self._indexes.checked(self._indexes.offsets.lookup, offset)
        log = self._file
        walk = scan_batches(file, position, log.size, after=log.base_offset - 1)
        try:
            for place in walk:
                if place.position == position and position and place.last_offset != indexed:
                    # Either the index is damaged, or the offset of a batch, which no checksum covers; the walk decides.
                    self._indexes.rebuild()
                    return self._find(offset, file)
                if place.last_offset >= offset:
                    return place, self._following(walk)
        except TornBatchError as error:
            log.check_torn_tail(error)
        return None

    @staticmethod
    def _following(walk: Iterator[BatchPosition]) -> BatchPosition | None:
        """Read the next batch's header. Its offset must be above those before, since no checksum covers offsets."""
        try:
            return next(walk, None)
        except OffsetOrderError:
            raise
        except CorruptRecordError:
            return None  # the next read reports the damage

    @property
    def indexed_bytes(self) -> int:
        """The position in the last entry of the offset index, a lower bound of the segment's original size; 0 without
        entries.
        """
        try:
            position = self._indexes.offsets.last[1]
        except CorruptIndexError:
            return 0
        return position + 1 if position > 0 else 0

    def next_offset(self) -> int:
        """Return the offset after the last batch, by a walk from the last index entry.

        Raises:
            CorruptRecordError: the file does not end with a complete batch.
        """
        offset, position = self._indexes.checked(lambda: self._indexes.offsets.last)
        places: list[BatchPosition] = []
        try:
            places += self._file.places(position)
        except CorruptRecordError:
            if not position:
                raise
        if position and (not places or places[0].last_offset != offset):
            self._indexes.rebuild()  # valid entries, but of another log file
            return self.next_offset()
        end = places[-1].position + places[-1].size if places else position
        if end != self._file.size:
            raise CorruptRecordError(
                f"{self._file.log_path} has {self._file.size} bytes, but its batches end at byte {end}"
            )
        return places[-1].last_offset + 1 if places else self._file.base_offset

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        up_to_offset: int | None,
        at_least_one: bool,
        hint: int | None = None,
        to_send: bool = False,
        ends_at: int | None = None,
    ) -> SegmentRead | None:
        """Read complete batches below ``up_to_offset``, from the batch that contains ``offset``.

        Args:
            max_bytes: the limit of their total size; with ``at_least_one``, the first batch may exceed it.
            hint: the position of the first batch, if known.
            to_send: return a slice of the file where possible, and never wait for the disk.
            ends_at: the end offset of the segment, if known.

        Returns:
            None when the segment has no batch at or above ``offset``; empty data when no batch fits the limits.

        Raises:
            ColdReadError: with ``to_send``, needed data is not in the page cache.
            CorruptRecordError: a header is damaged, so the batch boundaries are unknown.
        """
        handle = self._file.handle
        file: ReadableFile = handle
        if to_send:
            file = PageCacheFile(handle)
            if not self._indexes.offsets.is_loaded:
                require_in_page_cache(self._file.storage, self._indexes.offsets.path)
        first_batch: BatchPosition | None = None
        following: BatchPosition | None = None
        if hint is None:
            found = self._find(offset, file)
            if found is None:
                return None
            first_batch, following = found
            hint = first_batch.position
        end = self._file.size
        if up_to_offset is not None:
            bound = self._find(up_to_offset, file)
            end = bound[0].position if bound is not None else end
        available = end - hint
        if available <= 0:
            return SegmentRead(hint, b"", hint, None)
        size = min(max_bytes, available)
        head: Buffer | None = None
        if size < available or size < LOG_OVERHEAD:
            if first_batch is not None:
                first = first_batch.size
            else:
                head = file.read_at(hint, LOG_OVERHEAD)
                first = LOG_OVERHEAD + _OVERHEAD.unpack(head)[1]
            if first > available:
                self._file.batch_is_torn(hint)
                return None
            if size < first:
                if not at_least_one:
                    return SegmentRead(hint, b"", hint, None)
                size = first
        next_offset = None
        if size < available and following is not None and hint + size < following.position + following.size:
            end, next_offset = following.position, following.base_offset  # only the first batch fits
        elif size < available:
            end, next_offset = self._end_of_whole_batches(hint, hint + size, file)
        size = end - hint
        if not size:
            raise CorruptRecordError(f"{self._file.log_path}: the batch at byte {hint} is damaged")
        data: Buffer | FileSlice
        if not to_send:
            data = handle.view(hint, size)
        elif size >= _SLICE_BYTES:
            data = handle.slice(hint, size)
        else:
            data = file.read_at(hint, size)
            if len(data) < size:
                raise OSError(errno.EIO, f"{self._file.log_path} ends at byte {hint + len(data)}, not {end}")
        misplaced = False
        if first_batch is not None:
            base_offset = first_batch.base_offset
        else:
            if head is None:
                head = file.read_at(hint, LOG_OVERHEAD) if isinstance(data, FileSlice) else data[:LOG_OVERHEAD]
            base_offset, length = _OVERHEAD.unpack(head) if len(head) == LOG_OVERHEAD else (offset, size)
            if LOG_OVERHEAD + length > size:
                self._file.batch_is_torn(hint)
                return None
            misplaced = base_offset < offset
        if misplaced or (ends_at is not None and base_offset >= ends_at):
            raise CorruptRecordError(
                f"{self._file.log_path}: the batch at byte {hint} has offset {base_offset}, expected {offset}"
            )
        return SegmentRead(hint, data, end, next_offset)

    def _end_of_whole_batches(self, start: int, end: int, file: ReadableFile) -> tuple[int, int | None]:
        """Return the end position of the last complete batch between two positions, and the next offset."""
        _, indexed = self._indexes.checked(self._indexes.offsets.lookup_position, end - 1)
        position, next_offset = max(start, indexed), None
        try:
            for place in scan_batches(file, position, self._file.size):
                if place.position + place.size > end:
                    return place.position, place.base_offset
                position, next_offset = place.position + place.size, place.last_offset + 1
        except CorruptRecordError:
            pass  # return the batches before; the next read starts at the damage
        return position, next_offset if position == self._file.size else None  # no batch starts at a torn end

    def producer_batches(self, start_offset: int, end_offset: int | None) -> Iterator[tuple[BatchInfo, memoryview]]:
        """Yield the batches from ``start_offset`` up to ``end_offset``, with the bytes of control batches only.

        The headers of data batches have all data about their producers.
        """
        first = self.find(start_offset)
        if first is None:
            return
        for batch in self._file.headers(first.position):
            if end_offset is not None and batch.base_offset >= end_offset:
                return
            if batch.producer_id >= 0:
                data = self._file.read_batch(batch) if batch.is_control else b""
                yield batch, memoryview(data)
            if end_offset is not None and batch.next_offset >= end_offset:
                return  # bytes after the end may be torn

    def position_for_timestamp(self, timestamp: int, from_offset: int) -> int:
        """Return a position before which no batch at or above ``from_offset`` has a record at or after
        ``timestamp``.
        """
        _, offset = self._indexes.checked(self._indexes.times.lookup, timestamp)
        return self._indexes.checked(self._indexes.offsets.lookup, max(offset, from_offset))[1]
