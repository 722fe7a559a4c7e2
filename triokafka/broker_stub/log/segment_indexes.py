"""The indexes of a segment, and the timestamps that they keep. A damaged index is rebuilt when a read finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from triokafka.broker_stub.log.checkpoints import sync_path
from triokafka.broker_stub.log.index import CorruptIndexError, IndexFile, OffsetIndex, TimeIndex
from triokafka.broker_stub.log.segment_file import SegmentFile
from triokafka.broker_stub.log.segment_names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from triokafka.broker_stub.log.transaction_index import TransactionIndex
from triokafka.errors import CorruptRecordError
from triokafka.named_tuple import NamedTuple
from triokafka.records.batch import LOG_OVERHEAD, BatchInfo

T = TypeVar("T")


class TrustedPart(NamedTuple):
    """The beginning of a segment that recovery does not read: its end position, its largest timestamp with the offset,
    and the number of its bytes after the last index entry.
    """

    end: int
    end_offset: int
    largest: tuple[int, int]
    bytes_since_entry: int


class SegmentIndexes:
    """The offset, time and transaction index of the batches in ``file``.

    Args:
        interval_bytes: bytes of batches between two entries; ``index.interval.bytes``.
        max_bytes: the largest size of an index file; ``segment.index.bytes``.
        new: the segment is new, and has no index files.
    """

    def __init__(self, file: SegmentFile, *, interval_bytes: int, max_bytes: int, new: bool) -> None:
        storage, base_offset, path = file.storage, file.base_offset, file.path
        self.offsets = OffsetIndex(storage, path(INDEX_SUFFIX), base_offset, max_bytes=max_bytes, new=new)
        self.times = TimeIndex(storage, path(TIME_INDEX_SUFFIX), base_offset, max_bytes=max_bytes, new=new)
        self.transactions = TransactionIndex(storage, path(TRANSACTION_INDEX_SUFFIX), base_offset, new=new)
        self.interval_bytes = interval_bytes
        self._file = file
        self._first_timestamp: int | None = None
        self._max_timestamp: tuple[int, int] | None = (-1, base_offset) if new else None
        self._bytes_since_entry = 0
        self._known_good = new  # loaded, and consistent with the file

    def __iter__(self) -> Iterator[IndexFile]:
        return iter((self.offsets, self.times, self.transactions))

    @property
    def is_full(self) -> bool:
        """Whether an index has no room for another entry."""
        if not self._known_good:
            self.checked(lambda: (len(self.offsets), len(self.times)))
            self._known_good = True
        return self.offsets.is_full or self.times.is_full

    def update_paths(self) -> None:
        """Follow the segment's files to their new names."""
        path = self._file.path
        self.offsets.path = path(INDEX_SUFFIX)
        self.times.path = path(TIME_INDEX_SUFFIX)
        self.transactions.path = path(TRANSACTION_INDEX_SUFFIX)

    def add(self, batches: Sequence[BatchInfo], position: int, largest: tuple[int, int]) -> None:
        """Index the batch that was appended at ``position``.

        Args:
            largest: the result of `largest` before the append.
        """
        for batch in batches:
            last_offset = batch.base_offset + batch.last_offset_delta
            if batch.max_timestamp > largest[0]:
                self._max_timestamp = largest = (batch.max_timestamp, last_offset)
            if self._bytes_since_entry > self.interval_bytes:
                self._add_entry(last_offset, position, largest)
            size = batch.length + LOG_OVERHEAD
            position += size
            self._bytes_since_entry += size

    def truncate_to(self, offset: int) -> None:
        """Drop the entries from ``offset`` on, and write the files.

        The indexes are cut before the log: an index that is too short is slower, but one that is too long is wrong.
        """
        self.checked(lambda: len(self.times))
        for index in self:
            index.truncate_to(offset)
        self.write()

    def forget_timestamps(self) -> None:
        """Read the timestamps again when they are needed next; call it after the log file was cut."""
        self._bytes_since_entry = 0
        self._max_timestamp = None
        if not self._file.size:
            self._first_timestamp = None

    def seal(self) -> None:
        """Write the indexes, with the largest timestamp as the last entry."""
        if self._file.size:
            self.checked(lambda: self.times.maybe_append(*self.largest()))
        self.write()

    def write(self) -> None:
        """Write new entries to the files."""
        for index in self:
            index.write()

    # -- timestamps

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch; -1 when there is none."""
        if self._first_timestamp is None:
            if not self._file.size:
                return -1
            self._first_timestamp = next((batch.max_timestamp for batch in self._file.headers()), -1)
        return self._first_timestamp

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of the segment; -1 when there is none."""
        return self.largest()[0]

    @property
    def age_counts_from_ms(self) -> int:
        """The largest timestamp; if no record has one, the time of the last write to the file."""
        return self.max_timestamp if self.max_timestamp >= 0 else self._file.storage.modified_ms(self._file.log_path)

    @property
    def offset_of_max_timestamp(self) -> int:
        """The last offset of the first batch with the largest timestamp."""
        return self.largest()[1]

    def largest(self) -> tuple[int, int]:
        """Return the largest timestamp, or -1, and the last offset of the first batch that has it."""
        if self._max_timestamp is None:
            largest = self.checked(lambda: self.times.last)
            # Each entry of the offset index comes with an update of the time index, so only the rest must be read.
            _, position = self.checked(lambda: self.offsets.last)
            try:
                for batch in self._file.headers(position):
                    if batch.max_timestamp > largest[0]:
                        largest = (batch.max_timestamp, batch.last_offset)
            except CorruptRecordError:
                pass  # unreadable batches have no timestamp, and must not block retention
            self._max_timestamp = largest
        return self._max_timestamp

    # -- damage

    def checked(self, action: Callable[..., T], *arguments: object) -> T:
        """Call ``action``; if an index is damaged, rebuild both and call it again."""
        try:
            result = action(*arguments)
            self.offsets.check_bounds(self._file.size or 1)
            return result
        except CorruptIndexError:
            self.rebuild()
            return action(*arguments)

    def clear(self) -> None:
        """Empty all indexes; `read_through` and `write_rebuilt` fill them again."""
        self._clear_searchable()
        self.transactions.clear()

    def rebuild(self) -> None:
        """Rebuild the offset and time indexes from the batches. Raises `OSError`."""
        self._clear_searchable()
        self.read_through(None, None, check_crc=False)
        self.write_rebuilt()

    def _clear_searchable(self) -> None:
        """Empty the indexes, in an order that is safe if a crash comes in between.

        Recovery relies on an entry of the offset index to mean that the other indexes are complete up to it. So the
        offset index is emptied first and written last.
        """
        self.offsets.clear()
        self.offsets.write()
        if self.offsets.unsynced:
            sync_path(self._file.storage, self.offsets.path)
        self.times.clear()
        self._bytes_since_entry = 0

    def write_rebuilt(self) -> None:
        """Write and sync the indexes after a rebuild. Raises `OSError`."""
        for index in (self.times, self.transactions, self.offsets):
            index.write()
            if index.unsynced:
                sync_path(self._file.storage, index.path)
                index.unsynced = False

    def read_through(
        self, after: TrustedPart | None, visit: Callable[[BatchInfo, memoryview], None] | None, *, check_crc: bool
    ) -> int:
        """Read the batches, add them to the indexes, and return the end position of the valid ones."""
        valid, next_offset, largest, since_entry = after or (0, self._file.base_offset, (-1, self._file.base_offset), 0)
        self._max_timestamp, self._bytes_since_entry = largest, since_entry
        self._first_timestamp = None
        last_offset = next_offset - 1
        try:
            for batch, data in self._file.batches(valid, check_crc=check_crc):
                if batch.base_offset <= last_offset:
                    break  # a leader never writes descending offsets
                last_offset = batch.last_offset
                if last_offset - self._file.base_offset > 2**31 - 1:
                    break
                if batch.max_timestamp > largest[0]:
                    self._max_timestamp = largest = (batch.max_timestamp, last_offset)
                if self._bytes_since_entry > self.interval_bytes:
                    self._add_entry(last_offset, batch.position, largest)
                if visit is not None:
                    visit(batch, data)
                valid = batch.position + batch.size
                self._bytes_since_entry += batch.size
        except CorruptRecordError:
            pass  # the valid part ends here
        self.times.maybe_append(*largest)
        return valid

    def _add_entry(self, last_offset: int, position: int, largest: tuple[int, int]) -> None:
        if not self.offsets.reaches(position):
            return  # a compacted segment beyond this limit is searched from its last entry
        self.offsets.append(last_offset, position)
        self.times.maybe_append(*largest)
        self._bytes_since_entry = 0

    def trusted_part(self, offset: int) -> TrustedPart | None:
        """Return the part of the segment below ``offset``, which is on disk, so that recovery need not read it.

        Index entries beyond that part are dropped. Returns None when the indexes are damaged.

        Raises:
            OSError: the disk failed.
        """
        try:
            for index in self:
                index.salvage()
        except CorruptIndexError:
            return None
        indexed, position = self.offsets.lookup(offset - 1)
        if not position or position >= self._file.size:
            return None
        self.offsets.truncate_to(indexed + 1)
        self.times.truncate_to(indexed + 1)
        largest, since_entry, trusted = self.times.last, 0, None
        try:
            for batch in self._file.headers(position):
                if trusted is None and batch.last_offset != indexed:
                    return None
                if batch.last_offset >= offset or (trusted is not None and batch.base_offset < trusted.end_offset):
                    break  # a torn header may have zeros, so the offsets behind it cannot be trusted
                if batch.max_timestamp > largest[0]:
                    largest = (batch.max_timestamp, batch.last_offset)
                since_entry += batch.size
                trusted = TrustedPart(batch.end, batch.next_offset, largest, since_entry)
        except CorruptRecordError:
            return None
        if trusted is not None:
            self.transactions.truncate_to(trusted.end_offset)
        return trusted
