"""Reading and searching one segment of a log: a ``.log`` file of record batches with its indexes.

Reads batch headers only, and never past ``size``. A damaged index is rebuilt when a read finds it.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from triokafka.broker_stub.log.batch_positions import (
    BatchPosition,
    OffsetOrderError,
    ReadableFile,
    TornBatchError,
    place_at,
    scan_batches,
)
from triokafka.broker_stub.log.checkpoints import sync_path
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.damage import find_valid_batches
from triokafka.broker_stub.log.index import CorruptIndexError, IndexFile, OffsetIndex, TimeIndex
from triokafka.broker_stub.log.open_files import OpenFiles
from triokafka.broker_stub.log.page_cache import PageCacheFile, require_in_page_cache
from triokafka.broker_stub.log.segment_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_file_name,
)
from triokafka.broker_stub.log.transaction_index import TransactionIndex
from triokafka.errors import CorruptRecordError
from triokafka.named_tuple import NamedTuple
from triokafka.records.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD, BatchInfo, parse_batch
from triokafka.structs import Buffer
from triokafka.world import File, FileSlice

T = TypeVar("T")

_OVERHEAD: Final = struct.Struct(">qi")
_CHUNK: Final = 262_144  # bytes per read of complete batches
_HEADERS: Final = 4096  # bytes per read of headers
_SLICE_BYTES: Final = 16_384  # from this size on, sending from the file costs less than a copy


class TrustedPart(NamedTuple):
    """The beginning of a segment that recovery does not read: its end position, its largest timestamp with the offset,
    and the number of its bytes after the last index entry.
    """

    end: int
    end_offset: int
    largest: tuple[int, int]
    bytes_since_entry: int


class SegmentRead(NamedTuple):
    """Complete batches of a segment from ``position`` to ``next_position``.

    ``next_offset`` is the offset after the last batch, or None when it was not read.
    """

    position: int
    data: Buffer | FileSlice
    next_position: int
    next_offset: int | None


class SegmentReader:
    """The read operations of a `LogSegment`; see there for the arguments. They never change a ``.log`` file."""

    def __init__(
        self,
        files: OpenFiles,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        new: bool,
        now_ms: int,
        suffix: str = "",
    ) -> None:
        self.base_offset = base_offset
        self.created_ms = now_ms
        self.size = 0
        self.unsynced = False  # written since the last `sync`
        self._files = files
        self._storage = storage = files.storage
        self._directory = directory
        self._suffix = suffix
        self.config = config
        self._log_path = self.path(LOG_SUFFIX)
        self._torn = False  # a failed write left bytes behind `size`
        self._first_timestamp: int | None = None
        self._max_timestamp: tuple[int, int] | None = (-1, base_offset) if new else None
        self._bytes_since_index_entry = 0
        self._torn_tail_at: int | None = None  # end of the complete batches, if a torn one follows
        self._indexes_checked = new  # loaded, and consistent with the log file
        limit = config.segment_index_bytes
        self.offset_index = OffsetIndex(storage, self.path(INDEX_SUFFIX), base_offset, max_bytes=limit, new=new)
        self.time_index = TimeIndex(storage, self.path(TIME_INDEX_SUFFIX), base_offset, max_bytes=limit, new=new)
        self.transaction_index = TransactionIndex(storage, self.path(TRANSACTION_INDEX_SUFFIX), base_offset, new=new)
        if new:
            files.get(self._log_path, create=True).truncate(0)
        else:
            self.size = self.file.size()

    def __repr__(self) -> str:
        return f"LogSegment({self._log_path!r}, size={self.size})"

    def path(self, suffix: str) -> str:
        """Return the path of the segment's file with ``suffix``."""
        return f"{self._directory}/{offset_file_name(self.base_offset, suffix)}{self._suffix}"

    @property
    def ends_torn(self) -> bool:
        """Whether a read has found an incomplete batch at the end."""
        return self._torn_tail_at is not None

    @property
    def file(self) -> File:
        """Return the open ``.log`` file, for immediate use."""
        return self._files.get(self._log_path)

    def find(self, offset: int, *, from_position: int = 0, file: ReadableFile | None = None) -> BatchPosition | None:
        """Find the first batch whose last offset is at or above ``offset``, or None.

        Raises:
            CorruptRecordError: a header before that batch is damaged.
        """
        indexed, position = self._with_indexes(lambda: self.offset_index.lookup(offset))
        walk = scan_batches(file or self.file, max(position, from_position), self.size, after=self.base_offset - 1)
        try:
            for place in walk:
                if place.position == position and position and place.last_offset != indexed:
                    # Either the index is damaged, or the offset of a batch, which no checksum covers; the walk decides.
                    self.rebuild_indexes()
                    return self.find(offset, from_position=from_position, file=file)
                if place.last_offset >= offset:
                    return self._checked(place, walk)
        except TornBatchError as error:
            self._check_torn_tail(error)
        return None

    @staticmethod
    def _checked(place: BatchPosition, walk: Iterator[BatchPosition]) -> BatchPosition:
        """Check that the offset of the next batch is above that of ``place``, since no checksum covers offsets."""
        try:
            next(walk, None)
        except OffsetOrderError:
            raise
        except CorruptRecordError:
            pass  # the next read reports the damage
        return place

    def _check_torn_tail(self, error: TornBatchError) -> None:
        """Raise ``error`` unless its batch is the last one and torn; the segment then ends before it.

        Otherwise a corrupt length would hide the batches behind it.
        """
        position = error.position
        if position != self._torn_tail_at:
            if find_valid_batches(self.file, position + 1, self.size, self.base_offset, limit=1).batches:
                raise error
            self._torn_tail_at = position

    @property
    def indexed_bytes(self) -> int:
        """The position in the last entry of the offset index, a lower bound of the segment's original size; 0 without
        entries.
        """
        try:
            position = self.offset_index.last[1]
        except CorruptIndexError:
            return 0
        return position + 1 if position > 0 else 0

    def next_offset(self) -> int:
        """Return the offset after the last batch, by a walk from the last index entry.

        Raises:
            CorruptRecordError: the file does not end with a complete batch.
        """
        offset, position = self._with_indexes(lambda: self.offset_index.last)
        places: list[BatchPosition] = []
        try:
            places += self._places(position)
        except CorruptRecordError:
            if not position:
                raise
        if position and (not places or places[0].last_offset != offset):
            self.rebuild_indexes()  # valid entries, but of another log file
            return self.next_offset()
        end = places[-1].position + places[-1].size if places else position
        if end != self.size:
            raise CorruptRecordError(f"{self._log_path} has {self.size} bytes, its batches end at {end}")
        return places[-1].last_offset + 1 if places else self.base_offset

    def _places(self, position: int) -> Iterator[BatchPosition]:
        """Walk the headers from ``position``, which must be the start of a batch."""
        return scan_batches(self.file, position, self.size)

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
        file: ReadableFile = self.file
        if to_send:
            file = PageCacheFile(self.file)
            if not self.offset_index.is_loaded:
                require_in_page_cache(self._storage, self.offset_index.path)
        hinted = hint is not None
        if hint is None:
            found = self.find(offset, file=file)
            if found is None:
                return None
            hint = found.position
        end = self.size
        if up_to_offset is not None:
            bound = self.find(up_to_offset, file=file)
            end = bound.position if bound is not None else end
        available = end - hint
        if available <= 0:
            return SegmentRead(hint, b"", hint, None)
        size = min(max_bytes, available)
        if size < available or size < LOG_OVERHEAD:
            first = LOG_OVERHEAD + _OVERHEAD.unpack(file.read_at(hint, LOG_OVERHEAD))[1]
            if first > available:
                self._check_torn_tail(TornBatchError(hint, f"{self._log_path}: the batch at byte {hint} is cut"))
                return None
            if size < first:
                if not at_least_one:
                    return SegmentRead(hint, b"", hint, None)
                size = first
        next_offset = None
        if size < available:
            end, next_offset = self._end_of_whole_batches(hint, hint + size, file)
        size = end - hint
        if not size:
            raise CorruptRecordError(f"{self._log_path}: the batch at byte {hint} is damaged")
        data: Buffer | FileSlice
        if not to_send:
            data = self.file.view(hint, size)
        elif size >= _SLICE_BYTES:
            data = self.file.slice(hint, size)
        else:
            data = file.read_at(hint, size)
            if len(data) < size:
                raise OSError(errno.EIO, f"{self._log_path} ends at byte {hint + len(data)}, not {end}")
        head = file.read_at(hint, LOG_OVERHEAD) if isinstance(data, FileSlice) else data[:LOG_OVERHEAD]
        base_offset, length = _OVERHEAD.unpack(head) if len(head) == LOG_OVERHEAD else (offset, size)
        if LOG_OVERHEAD + length > size:
            self._check_torn_tail(TornBatchError(hint, f"{self._log_path}: the batch at byte {hint} is cut"))
            return None
        if (hinted and base_offset < offset) or (ends_at is not None and base_offset >= ends_at):
            raise CorruptRecordError(
                f"{self._log_path}: the batch at byte {hint} has offset {base_offset}, expected {offset}"
            )
        return SegmentRead(hint, data, end, next_offset)

    def _end_of_whole_batches(self, start: int, end: int, file: ReadableFile) -> tuple[int, int | None]:
        """Return the end position of the last complete batch between two positions, and the next offset."""
        _, indexed = self._with_indexes(lambda: self.offset_index.lookup_position(end - 1))
        position, next_offset = max(start, indexed), None
        try:
            for place in scan_batches(file, position, self.size):
                if place.position + place.size > end:
                    return place.position, place.base_offset
                position, next_offset = place.position + place.size, place.last_offset + 1
        except CorruptRecordError:
            pass  # return the batches before; the next read starts at the damage
        return position, next_offset if position == self.size else None  # no batch starts at a torn end

    def batches(self, position: int = 0, *, check_crc: bool = False) -> Iterator[tuple[BatchInfo, memoryview]]:
        """Yield header and bytes of every batch from ``position`` on; ``BatchInfo.position`` is the file position.

        Raises:
            CorruptRecordError: the bytes are not a batch, or the batch is torn.
        """
        rest, want = (
            b"",
            _CHUNK,
        )  # the bytes already read of the batch at `position`, and the total bytes to read for it
        while position < self.size:
            left = self.size - position
            view = memoryview(rest + self.file.read_at(position + len(rest), min(want, left) - len(rest)))
            used = 0
            while (batch := parse_batch(view, used, check_crc=check_crc)) is not None:
                data = view[used : used + batch.size]
                used += batch.size
                yield batch._replace(position=position + used - batch.size), data
            rest, want = bytes(view[used:]), _CHUNK
            if not used:
                needed = LOG_OVERHEAD + _OVERHEAD.unpack(view[:LOG_OVERHEAD])[1] if len(view) >= LOG_OVERHEAD else 0
                if len(view) == left or needed > left or needed <= len(view):
                    raise CorruptRecordError(f"{self._log_path}: the batch at byte {position} is cut")
                want = needed
            position += used

    def producer_batches(self, start_offset: int, end_offset: int | None) -> Iterator[tuple[BatchInfo, memoryview]]:
        """Yield batches like `batches`, from ``start_offset`` up to ``end_offset``, with the bytes of control batches
        only.

        The headers of data batches have all data about their producers.
        """
        first = self.find(start_offset)
        if first is None:
            return
        for batch in self.headers(first.position):
            if end_offset is not None and batch.base_offset >= end_offset:
                return
            if batch.producer_id >= 0:
                data = self.read_batch(batch) if batch.is_control else b""
                yield batch, memoryview(data)
            if end_offset is not None and batch.next_offset >= end_offset:
                return  # bytes after the end may be torn

    def headers(self, position: int = 0) -> Iterator[BatchInfo]:
        """Yield the headers of `batches`; most of the records are not read."""
        window, start = b"", position
        while (left := self.size - position) >= LOG_OVERHEAD:
            at = position - start
            if len(window) - at < HEADER_SIZE:
                # Small batches are read together; for large ones, only the header is read.
                size = _HEADERS if at - len(window) < _HEADERS else HEADER_SIZE
                window, start, at = self.file.read_at(position, min(size, left)), position, 0
            place = place_at(window, at, position)
            if place is None or place.size > left:
                return
            if window[at + 16] >= 2 and len(window) - at >= HEADER_SIZE:
                yield BatchInfo._make((position, *HEADER.unpack_from(window, at)))
            else:  # an older format, whose headers have different sizes
                batch = parse_batch(memoryview(self.file.read_at(position, place.size)), 0)
                if batch is None:
                    return
                yield batch._replace(position=position)
            position += place.size

    def read_batch(self, batch: BatchInfo) -> bytes:
        """Return the bytes of a batch from `headers`."""
        return self.file.read_at(batch.position, batch.size)

    # -- timestamps

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch; -1 when there is none."""
        if self._first_timestamp is None:
            if not self.size:
                return -1
            self._first_timestamp = next((batch.max_timestamp for batch in self.headers()), -1)
        return self._first_timestamp

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of the segment; -1 when there is none."""
        return self._largest()[0]

    @property
    def age_counts_from_ms(self) -> int:
        """The largest timestamp; if no record has one, the time of the last write to the file."""
        return self.max_timestamp if self.max_timestamp >= 0 else self._storage.modified_ms(self._log_path)

    @property
    def offset_of_max_timestamp(self) -> int:
        """The last offset of the first batch with the largest timestamp."""
        return self._largest()[1]

    def _largest(self) -> tuple[int, int]:
        if self._max_timestamp is None:
            largest = self._with_indexes(lambda: self.time_index.last)
            # Each entry of the offset index comes with an update of the time index, so only the rest must be read.
            _, position = self._with_indexes(lambda: self.offset_index.last)
            try:
                for batch in self.headers(position):
                    if batch.max_timestamp > largest[0]:
                        largest = (batch.max_timestamp, batch.last_offset)
            except CorruptRecordError:
                pass  # unreadable batches have no timestamp, and must not block retention
            self._max_timestamp = largest
        return self._max_timestamp

    def position_for_timestamp(self, timestamp: int, from_offset: int) -> int:
        """Return a position before which no batch at or above ``from_offset`` has a record at or after
        ``timestamp``.
        """
        _, offset = self._with_indexes(lambda: self.time_index.lookup(timestamp))
        return self._with_indexes(lambda: self.offset_index.lookup(max(offset, from_offset)))[1]

    # -- indexes

    def _indexes(self) -> tuple[IndexFile, ...]:
        return self.offset_index, self.time_index, self.transaction_index

    def _with_indexes(self, action: Callable[[], T]) -> T:
        """Run ``action``; if an index is damaged, rebuild both and run it again."""
        try:
            result = action()
            self.offset_index.check_bounds(max(self.size, 1))
            return result
        except CorruptIndexError:
            self.rebuild_indexes()
            return action()

    def rebuild_indexes(self) -> None:
        """Rebuild the offset and time indexes from the batches. Raises `OSError`."""
        self._clear_indexes()
        self._read_through(None, None, check_crc=False)
        self._write_rebuilt()

    def _clear_indexes(self) -> None:
        """Empty the indexes, in an order that is safe if a crash comes in between.

        Recovery relies on an entry of the offset index to mean that the other indexes are complete up to it. So the
        offset index is emptied first and written last.
        """
        self.offset_index.clear()
        self.offset_index.write()
        if self.offset_index.unsynced:
            sync_path(self._storage, self.offset_index.path)
        self.time_index.clear()
        self._bytes_since_index_entry = 0

    def _write_rebuilt(self) -> None:
        for index in (self.time_index, self.transaction_index, self.offset_index):
            index.write()
            if index.unsynced:
                sync_path(self._storage, index.path)
                index.unsynced = False

    def _read_through(
        self, after: TrustedPart | None, visit: Callable[[BatchInfo, memoryview], None] | None, *, check_crc: bool
    ) -> int:
        """Read the batches, add them to the indexes, and return the end position of the valid ones."""
        valid, next_offset, largest, since_entry = after or (0, self.base_offset, (-1, self.base_offset), 0)
        self._max_timestamp, self._bytes_since_index_entry = largest, since_entry
        self._first_timestamp = None
        last_offset = next_offset - 1
        try:
            for batch, data in self.batches(valid, check_crc=check_crc):
                if batch.base_offset <= last_offset:
                    break  # a leader never writes descending offsets
                last_offset = batch.last_offset
                if last_offset - self.base_offset > 2**31 - 1:
                    break
                if batch.max_timestamp > largest[0]:
                    self._max_timestamp = largest = (batch.max_timestamp, last_offset)
                if self._bytes_since_index_entry > self.config.index_interval_bytes:
                    self._add_index_entry(last_offset, batch.position)
                if visit is not None:
                    visit(batch, data)
                valid = batch.position + batch.size
                self._bytes_since_index_entry += batch.size
        except CorruptRecordError:
            pass  # the valid part ends here
        self.time_index.maybe_append(*largest)
        return valid

    def _add_index_entry(self, last_offset: int, position: int) -> None:
        if not self.offset_index.reaches(position):
            return  # a compacted segment beyond this limit is searched from its last entry
        self.offset_index.append(last_offset, position)
        self.time_index.maybe_append(*self._largest())
        self._bytes_since_index_entry = 0
