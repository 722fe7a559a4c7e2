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
    """Complete batches of a segment.

    ``next_offset`` is the offset after them, and ``next_batch`` the batch there; None where that was not read.
    """

    data: Buffer | FileSlice
    next_offset: int | None = None
    next_batch: BatchPosition | None = None


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
        hint: BatchPosition | None = None,
        to_send: bool = False,
        ends_at: int | None = None,
    ) -> SegmentRead | None:
        """Read complete batches below ``up_to_offset``, from the batch that contains ``offset``.

        Args:
            max_bytes: the limit of their total size; with ``at_least_one``, the first batch may exceed it.
            hint: the first batch, if known.
            to_send: return a slice of the file where possible, and never wait for the disk.
            ends_at: the end offset of the segment, if known.

        Returns:
            None when the segment has no batch at or above ``offset``; empty data when no batch fits the limits.

        Raises:
            ColdReadError: with ``to_send``, needed data is not in the page cache.
            CorruptRecordError: a header is damaged, so the batch boundaries are unknown.
        """
        log = self._file
        handle = log.handle
        file: ReadableFile = handle
        if to_send:
            file = PageCacheFile(handle)
            if not self._indexes.offsets.is_loaded:
                require_in_page_cache(log.storage, self._indexes.offsets.path)
        first, following = hint, None
        if first is None:
            found = self._find(offset, file)
            if found is None:
                return None
            first, following = found
        if ends_at is not None and first.base_offset >= ends_at:
            raise self._misplaced(first.position, first.base_offset, offset)
        start = first.position
        end = log.size
        if up_to_offset is not None:
            bound = self._find(up_to_offset, file)
            end = bound[0].position if bound is not None else end
        available = end - start
        if available <= 0:
            return SegmentRead(b"")
        if first.size > available:
            log.batch_is_torn(start)
            return None
        size = available
        next_offset, next_batch = None, None
        if max_bytes < available:
            if max_bytes < first.size:
                if not at_least_one:
                    return SegmentRead(b"")
                max_bytes = first.size
            limit = start + max_bytes
            if following is None or limit >= following.position + following.size:
                end, next_offset, next_batch = self._end_of_whole_batches(start, limit, file)
            else:  # only the first batch fits
                end, next_offset, next_batch = following.position, following.base_offset, following
            size = end - start
            if not size:
                raise CorruptRecordError(f"{log.log_path}: the batch at byte {start} is damaged")
        data: Buffer | FileSlice
        if not to_send:
            data = handle.view(start, size)
        elif size >= _SLICE_BYTES:
            return SegmentRead(handle.slice(start, size), next_offset, next_batch)
        else:
            data = file.read_at(start, size)
            if len(data) < size:
                raise OSError(errno.EIO, f"{log.log_path} ends at byte {start + len(data)}, not {end}")
        if first is hint:  # its header was not read now
            base_offset, length = _OVERHEAD.unpack_from(data)
            if LOG_OVERHEAD + length > size:
                log.batch_is_torn(start)
                return None
            if base_offset != first.base_offset:
                raise self._misplaced(start, base_offset, offset)
        return SegmentRead(data, next_offset, next_batch)

    def _misplaced(self, position: int, base_offset: int, offset: int) -> CorruptRecordError:
        return CorruptRecordError(
            f"{self._file.log_path}: the batch at byte {position} has offset {base_offset}, expected {offset}"
        )

    def _end_of_whole_batches(
        self, start: int, end: int, file: ReadableFile
    ) -> tuple[int, int | None, BatchPosition | None]:
        """Return the end position of the last complete batch between two positions, the next offset and its batch."""
        _, indexed = self._indexes.checked(self._indexes.offsets.lookup_position, end - 1)
        position, next_offset = max(start, indexed), None
        try:
            for place in scan_batches(file, position, self._file.size):
                if place.position + place.size > end:
                    return place.position, place.base_offset, place
                position, next_offset = place.position + place.size, place.last_offset + 1
        except CorruptRecordError:
            pass  # return the batches before; the next read starts at the damage
        return position, next_offset if position == self._file.size else None, None  # no batch starts at a torn end

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
