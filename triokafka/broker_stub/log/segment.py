"""One segment of a log: a ``.log`` file of record batches with its indexes.

A segment knows positions and sizes; what offsets to assign and what is valid is the log's affair. Batches are stored as
they came. Reading and searching look at batch headers only, and never past `LogSegment.size`.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from triokafka.broker_stub.log.batch_places import BatchPlace, ReadableFile, place_at, walk_batches
from triokafka.broker_stub.log.checkpoints import sync_path
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.index import CorruptIndexError, IndexFile, OffsetIndex, TimeIndex
from triokafka.broker_stub.log.open_files import OpenFiles
from triokafka.broker_stub.log.resident import ResidentFile, require_resident
from triokafka.broker_stub.log.transaction_index import TransactionIndex
from triokafka.errors import CorruptRecordError
from triokafka.records.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD, BatchInfo, parse_batch
from triokafka.structs import Buffer
from triokafka.world import File
from triokafka.world_files import FileSlice

T = TypeVar("T")

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"  # being written by compaction
SWAP_SUFFIX: Final = ".swap"  # complete, about to take the place of others
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

_OVERHEAD: Final = struct.Struct(">qi")
_CHUNK: Final = 262_144  # bytes read at once when reading whole batches
_HEADERS: Final = 4096  # bytes read at once when only headers are looked at
_SLICE_BYTES: Final = 16_384  # from here on sending from the file costs less than a copy


def offset_file_name(offset: int, suffix: str) -> str:
    """Kafka's name of a file that belongs to an offset: 20 digits and a suffix (C03)."""
    return f"{offset:020d}{suffix}"


def is_segment_file(name: str, suffix: str) -> bool:
    """Whether that is the name of one of a segment's files, the one with ``suffix``."""
    stem = name.removesuffix(suffix)
    return stem != name and len(stem) == 20 and stem.isascii() and stem.isdigit()


class TrustedPart(NamedTuple):
    """The beginning of a segment that recovery leaves alone: up to where it goes, its largest timestamp with its
    offset, and how many of its bytes lie behind the last index entry."""

    end: int
    end_offset: int
    largest: tuple[int, int]
    bytes_since_entry: int


class SegmentRead(NamedTuple):
    """Whole batches read from a segment: they start at ``position`` and the batch after them at ``next_position``.

    ``next_offset`` is the offset after the last batch, or None when it was not looked at.
    """

    position: int
    data: Buffer | FileSlice
    next_position: int
    next_offset: int | None


class LogSegment:
    """A range of a log on disk (E01–E12). Not thread safe; errors of the disk are `OSError`.

    Args:
        directory: of the log.
        new: make empty files instead of using those that are there.
        now_ms: the wall clock, for rolling a segment without timestamps.
        suffix: what the names of its files end with: nothing, `CLEANED_SUFFIX` or `SWAP_SUFFIX`.
    """

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
        self._indexes_checked = new  # they are loaded, and fit the log file
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
        """The path of one of the segment's files."""
        return f"{self._directory}/{offset_file_name(self.base_offset, suffix)}{self._suffix}"

    def moved_to(self, directory: str) -> None:
        """The log's directory was renamed."""
        self._directory = directory
        self._update_paths()

    def adopt(self, files: OpenFiles) -> None:
        """Belong to another set of open files from now on, for use in another thread than before."""
        self.close()
        self._files = files

    def reopened(self, files: OpenFiles) -> LogSegment:
        """The same sealed segment once more, for reading in another thread with ``files`` of its own."""
        return LogSegment(files, self._directory, self.base_offset, self.config, new=False, now_ms=self.created_ms)

    def change_suffix(self, suffix: str) -> None:
        """Rename the files so that they end with ``suffix`` (F25). Raises `OSError` with some of them renamed."""
        self._rename(SEGMENT_SUFFIXES, suffix)
        self._suffix = suffix
        self._update_paths()

    def take_name(self) -> Iterator[None]:
        """Rename the files to their usual names; yields where the names must be on disk before it goes on."""
        for kinds in (SEGMENT_SUFFIXES[:1], SEGMENT_SUFFIXES[1:]):
            self._rename(kinds, "")
            if kinds[0] == LOG_SUFFIX:
                self._log_path = f"{self._directory}/{offset_file_name(self.base_offset, LOG_SUFFIX)}"
            else:
                self._suffix = ""
                self._update_paths()
            yield

    def _rename(self, kinds: Sequence[str], suffix: str) -> None:
        self.close()
        for kind in kinds:
            source = self.path(kind)
            if self._storage.exists(source):
                self._storage.rename(source, source.removesuffix(self._suffix) + suffix)

    def _update_paths(self) -> None:
        self._log_path = self.path(LOG_SUFFIX)
        self.offset_index.path = self.path(INDEX_SUFFIX)
        self.time_index.path = self.path(TIME_INDEX_SUFFIX)
        self.transaction_index.path = self.path(TRANSACTION_INDEX_SUFFIX)

    @property
    def file(self) -> File:
        """The open ``.log`` file; for use at once."""
        return self._files.get(self._log_path)

    # -- writing

    def append(self, batches: Sequence[BatchInfo], data: Buffer) -> None:
        """Write ``data``, which consists of ``batches`` with their final offsets (E02).

        Raises:
            OSError: nothing was added; a later call may succeed.
        """
        self.unsynced = True
        largest = self._largest()  # now: once the bytes are written, nothing may fail any more
        position = self.size
        self._write(data)
        self.size += len(data)
        interval = self.config.index_interval_bytes
        for batch in batches:
            if batch.max_timestamp > largest[0]:
                self._max_timestamp = largest = (batch.max_timestamp, batch.last_offset)
            if self._bytes_since_index_entry > interval:
                self._add_index_entry(batch.last_offset, position)
            size = batch.size
            position += size
            self._bytes_since_index_entry += size

    def _write(self, data: Buffer) -> None:
        if self._torn:
            self.file.truncate(self.size)
            self._torn = False
        try:
            self.file.write_at(self.size, data)
        except OSError:
            self._torn = True
            try:
                self.file.truncate(self.size)
                self._torn = False
            except OSError:
                pass  # tried again before the next write; until then nobody reads past `size`
            raise

    def _add_index_entry(self, last_offset: int, position: int) -> None:
        self.offset_index.append(last_offset, position)
        self.time_index.maybe_append(*self._largest())
        self._bytes_since_index_entry = 0

    def should_roll(self, *, incoming_bytes: int, max_timestamp: int, last_offset: int, now_ms: int) -> bool:
        """Whether a set of batches must go to a new segment (F12, Z05)."""
        config = self.config
        if self.size > config.segment_bytes - incoming_bytes:
            return self.size > 0
        if last_offset - self.base_offset > 2**31 - 1:
            return True
        if self.size == 0:
            return False
        first = self.first_timestamp
        waited = max_timestamp - first if first >= 0 else now_ms - self.created_ms
        limit = config.roll_after_ms
        jitter = min(config.segment_jitter_ms, limit)
        if jitter:
            jitter = self.base_offset * 2654435761 % jitter  # spread without randomness: the same after a restart
        if waited > limit - jitter:
            return True
        if not self._indexes_checked:
            self._with_indexes(lambda: (len(self.offset_index), len(self.time_index)))
            self._indexes_checked = True
        return self.offset_index.is_full or self.time_index.is_full

    def seal(self) -> None:
        """Nothing more will be appended: write the indexes, with the largest timestamp as the last entry."""
        if self.size:
            self._with_indexes(lambda: self.time_index.maybe_append(*self._largest()))
        self.write_indexes()

    def write_indexes(self) -> None:
        """Bring the index files up to date."""
        for index in self._indexes():
            index.write()

    def _indexes(self) -> tuple[IndexFile, ...]:
        return self.offset_index, self.time_index, self.transaction_index

    def sync(self) -> None:
        """Make everything written so far durable, except the files' names (E10)."""
        self.begin_sync()()

    def begin_sync(self) -> Callable[[], None]:
        """Prepare a `sync`; the function returned does the slow part, and may run in another thread."""
        self.write_indexes()
        storage = self._storage
        paths = [index.path for index in self._indexes() if index.unsynced]
        may_be_new = self.transaction_index.unsynced  # the one file that comes when its segment is there already
        directory = self._directory
        new_names = any(index.name_unsynced for index in self._indexes())
        self.unsynced = False
        for index in self._indexes():
            index.unsynced = index.name_unsynced = False

        def run() -> None:
            for path in (self._log_path, *paths):
                sync_path(storage, path)
            if new_names:
                # An index can be made long after its segment; a transaction index that is missing passes for empty.
                storage.sync_dir(self._directory)
            if may_be_new:
                storage.sync_dir(directory)

        return run

    def truncate_to(self, offset: int) -> int:
        """Drop the batch that contains ``offset`` and all after it; returns the number of bytes dropped (E09)."""
        place = self.find(offset)
        if place is None:
            return 0
        self._with_indexes(lambda: len(self.time_index))
        for index in self._indexes():
            index.truncate_to(offset)
        dropped = self.size - place.position
        # The indexes first: an index that is too short is only slower, one that is too long is wrong.
        self.write_indexes()
        self.file.truncate(place.position)
        self.size = place.position
        self.unsynced = True
        self._bytes_since_index_entry = 0
        self._max_timestamp = None
        if not self.size:
            self._first_timestamp = None
        return dropped

    # -- searching and reading

    def find(self, offset: int, *, from_position: int = 0, file: ReadableFile | None = None) -> BatchPlace | None:
        """The first batch whose last offset is at or above ``offset``; None when there is none (E04)."""
        _, position = self._with_indexes(lambda: self.offset_index.lookup(offset))
        for place in walk_batches(file or self.file, max(position, from_position), self.size):
            if place.last_offset >= offset:
                return place
        return None

    def next_offset(self) -> int:
        """The offset after the last batch, from the last index entry on (E11).

        Raises:
            CorruptRecordError: the file does not end with a whole batch.
        """
        offset, position = self._with_indexes(lambda: self.offset_index.last)
        places: list[BatchPlace] = []
        try:
            places += self._places(position)
        except CorruptRecordError:
            if not position:
                raise
        if position and (not places or places[0].last_offset != offset):
            self.rebuild_indexes()  # plausible in itself, but of another log file
            return self.next_offset()
        end = places[-1].position + places[-1].size if places else position
        if end != self.size:
            raise CorruptRecordError(f"{self._log_path} has {self.size} bytes, its batches end at {end}")
        return places[-1].last_offset + 1 if places else self.base_offset

    def _places(self, position: int) -> Iterator[BatchPlace]:
        """Walk the headers from ``position``, which must be the start of a batch."""
        return walk_batches(self.file, position, self.size)

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        up_to_offset: int | None,
        at_least_one: bool,
        hint: int | None = None,
        to_send: bool = False,
    ) -> SegmentRead | None:
        """Whole batches from the one that contains ``offset``, all of them below ``up_to_offset`` (E05).

        Args:
            max_bytes: their total size; with ``at_least_one`` the first batch may be larger.
            hint: the position of the first batch, when known.
            to_send: the data are to be sent only, so that a slice of the file will do; and the disk is not waited for.

        Returns:
            None when the segment has nothing at or above ``offset``; empty data when nothing fits the bounds.

        Raises:
            ColdReadError: with ``to_send``, where the disk would have to be waited for.
        """
        file: ReadableFile = self.file
        if to_send:
            file = ResidentFile(self.file)
            if not self.offset_index.is_loaded:
                require_resident(self._storage, self.offset_index.path)
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
            if size < first:
                if not at_least_one:
                    return SegmentRead(hint, b"", hint, None)
                size = first
        next_offset = None
        if size < available:
            end, next_offset = self._end_of_whole_batches(hint, hint + size, file)
        size = end - hint
        data: Buffer | FileSlice
        if not to_send:
            data = self.file.view(hint, size)
        elif size >= _SLICE_BYTES:
            data = self.file.slice(hint, size)
        else:
            data = file.read_at(hint, size)
            if len(data) < size:
                raise OSError(errno.EIO, f"{self._log_path} ends at byte {hint + len(data)}, not {end}")
        return SegmentRead(hint, data, end, next_offset)

    def _end_of_whole_batches(self, start: int, end: int, file: ReadableFile) -> tuple[int, int | None]:
        """Where the last whole batch between two positions ends, and the offset at which the next one begins."""
        _, indexed = self._with_indexes(lambda: self.offset_index.lookup_position(end - 1))
        position, next_offset = max(start, indexed), None
        for place in walk_batches(file, position, self.size):
            if place.position + place.size > end:
                return place.position, place.base_offset
            position, next_offset = place.position + place.size, place.last_offset + 1
        return position, next_offset

    def batches(self, position: int = 0, *, check_crc: bool = False) -> Iterator[tuple[BatchInfo, memoryview]]:
        """Header and bytes of every batch from ``position`` on; ``BatchInfo.position`` is the one in the file.

        Raises:
            CorruptRecordError: what is there is not a batch, or is cut.
        """
        rest, want = b"", _CHUNK  # what was read already of the batch at `position`; how much to read for it in all
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
        """As `batches`, from the batch with ``start_offset`` up to ``end_offset``, but bytes only of control batches.

        Of the others just the headers are read, which tell all that there is to know of their producers.
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

    def headers(self, position: int = 0) -> Iterator[BatchInfo]:
        """As `batches`, but without the bytes, most of which are not read."""
        window, start = b"", position
        while (left := self.size - position) >= LOG_OVERHEAD:
            at = position - start
            if len(window) - at < HEADER_SIZE:
                # Small batches are read together; of large ones only the headers.
                size = _HEADERS if at - len(window) < _HEADERS else HEADER_SIZE
                window, start, at = self.file.read_at(position, min(size, left)), position, 0
            place = place_at(window, at, position)
            if place is None or place.size > left:
                return
            if window[at + 16] >= 2 and len(window) - at >= HEADER_SIZE:
                yield BatchInfo._make((position, *HEADER.unpack_from(window, at)))
            else:  # an older format, where one header is not like another
                batch = parse_batch(memoryview(self.file.read_at(position, place.size)), 0)
                if batch is None:
                    return
                yield batch._replace(position=position)
            position += place.size

    def read_batch(self, batch: BatchInfo) -> bytes:
        """The bytes of a batch that `headers` has found."""
        return self.file.read_at(batch.position, batch.size)

    # -- timestamps

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch; -1 when there is none."""
        if self._first_timestamp is None:
            if not self.size:
                return -1
            self._first_timestamp = next((batch.max_timestamp for batch, _ in self.batches()), -1)
        return self._first_timestamp

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of the segment; -1 when there is none."""
        return self._largest()[0]

    @property
    def offset_of_max_timestamp(self) -> int:
        """The last offset of the first batch that has the largest timestamp."""
        return self._largest()[1]

    def _largest(self) -> tuple[int, int]:
        if self._max_timestamp is None:
            largest = self._with_indexes(lambda: self.time_index.last)
            # With every entry of the offset index the time index was brought up to date, so only the rest is looked at.
            _, position = self._with_indexes(lambda: self.offset_index.last)
            for batch, _ in self.batches(position):
                if batch.max_timestamp > largest[0]:
                    largest = (batch.max_timestamp, batch.last_offset)
            self._max_timestamp = largest
        return self._max_timestamp

    def position_for_timestamp(self, timestamp: int, from_offset: int) -> int:
        """A position before which no batch at or above ``from_offset`` has a record at or after ``timestamp``."""
        _, offset = self._with_indexes(lambda: self.time_index.lookup(timestamp))
        return self._with_indexes(lambda: self.offset_index.lookup(max(offset, from_offset)))[1]

    # -- recovery

    def _with_indexes(self, action: Callable[[], T]) -> T:
        """Do ``action``; when an index proves to be broken, rebuild both and do it again (D10, I05)."""
        try:
            result = action()
            self.offset_index.check_bounds(max(self.size, 1))
            return result
        except CorruptIndexError:
            self.rebuild_indexes()
            return action()

    def rebuild_indexes(self) -> None:
        """Make offset and time index anew from the batches."""
        self._clear_indexes()
        self._read_through(None, None, check_crc=False)

    def trusted_part(self, offset: int) -> TrustedPart | None:
        """What need not be read after a crash, because it is below ``offset``, up to which all is on disk.

        The indexes keep only what they say of that part. None when they are not to be trusted.

        Raises:
            OSError: the disk failed.
        """
        try:
            for index in self._indexes():
                index.salvage()
        except CorruptIndexError:
            return None
        indexed, position = self.offset_index.lookup(offset - 1)
        if not position or position >= self.size:
            return None
        self.offset_index.truncate_to(indexed + 1)
        self.time_index.truncate_to(indexed + 1)
        largest, since_entry, trusted = self.time_index.last, 0, None
        try:
            for batch in self.headers(position):
                if trusted is None and batch.last_offset != indexed:
                    return None
                if batch.last_offset >= offset:
                    break
                if batch.max_timestamp > largest[0]:
                    largest = (batch.max_timestamp, batch.last_offset)
                since_entry += batch.size
                trusted = TrustedPart(batch.end, batch.next_offset, largest, since_entry)
        except CorruptRecordError:
            return None
        if trusted is not None:
            self.transaction_index.truncate_to(trusted.end_offset)
        return trusted

    def recover(self, visit: Callable[[BatchInfo, memoryview], None], *, after: TrustedPart | None = None) -> int:
        """Read the batches, rebuild the indexes, and cut the file at the first bad batch (E08, I09).

        Args:
            visit: called with every good batch.
            after: from `trusted_part`: read only what comes after it.

        Returns:
            The number of bytes cut.
        """
        if after is None:
            self._clear_indexes()
            self.transaction_index.clear()
        valid = self._read_through(after, visit, check_crc=True)
        dropped = self.size - valid
        if dropped:
            self.file.truncate(valid)
            self.size = valid
        # Before anything else comes there, also for what a dead process has cut: a second crash could bring it back
        # behind what was appended meanwhile.
        sync_path(self._storage, self._log_path)
        self.unsynced = True
        self.write_indexes()
        for index in self._indexes():
            index.unsynced = True  # also what is as it should be: a process may have died before it was synced
        return dropped

    def _clear_indexes(self) -> None:
        self.offset_index.clear()
        self.time_index.clear()
        self._bytes_since_index_entry = 0

    def _read_through(
        self, after: TrustedPart | None, visit: Callable[[BatchInfo, memoryview], None] | None, *, check_crc: bool
    ) -> int:
        """Read the batches, add them to the indexes, and return where the good ones end."""
        valid, next_offset, largest, since_entry = after or (0, self.base_offset, (-1, self.base_offset), 0)
        self._max_timestamp, self._bytes_since_index_entry = largest, since_entry
        self._first_timestamp = None
        last_offset = next_offset - 1
        try:
            for batch, data in self.batches(valid, check_crc=check_crc):
                if batch.base_offset <= last_offset:
                    break  # offsets that go back were not written by a leader
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
            pass  # this is where the good part ends
        self.time_index.maybe_append(*largest)
        return valid

    # -- end of life

    def close(self) -> None:
        """Close the file. Writes nothing."""
        self._files.close(self._log_path)

    def mark_deleted(self) -> list[str]:
        """Rename the files so that they no longer count, and return their new paths (F24).

        Raises:
            OSError: the segment is there as before. (Once its ``.log`` is renamed it is gone: the other files mean
                nothing without it, and the next opening of the log removes them.)
        """
        self.close()
        self._storage.rename(self._log_path, self._log_path + DELETED_SUFFIX)
        renamed = [self._log_path + DELETED_SUFFIX]
        for suffix in SEGMENT_SUFFIXES[1:]:
            path = self.path(suffix)
            try:
                self._storage.rename(path, path + DELETED_SUFFIX)
            except OSError:
                continue
            renamed.append(path + DELETED_SUFFIX)
        return renamed
