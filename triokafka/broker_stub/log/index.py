"""The two sparse indexes of a segment, in Kafka's file formats: by offset and by time.

`OffsetIndex` maps offsets to byte positions in the ``.log`` file (``.index``: 4 bytes of offset relative to the
segment's base, 4 bytes of position). `TimeIndex` maps timestamps to offsets (``.timeindex``: 8 bytes of timestamp, 4 of
relative offset). Both are big-endian and strictly increasing. They have no checksum, since they can be rebuilt from the
log at any time: implausible content raises `CorruptIndexError`, and the segment rebuilds the index.

The first look-up loads all entries into memory; reading the last entry does not. So the cost of opening a log does not
depend on its size. `write` writes new entries to the file.
"""

from __future__ import annotations

import struct
import sys
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import Final

from triokafka.errors import KafkaError
from triokafka.structs import Buffer
from triokafka.world import Storage

_MAX_RELATIVE_OFFSET: Final = 2**31 - 1
_MAX_POSITION: Final = 2**31 - 1
_OFFSET_ENTRY: Final = struct.Struct(">II")
_TIME_ENTRY: Final = struct.Struct(">qI")


class CorruptIndexError(KafkaError):
    """An index file is missing or malformed; rebuild it from the log.

    ``path`` is the file.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path} {problem}")
        self.path = path


class IndexFile(ABC):
    """The base of all indexes: a file of fixed-size entries, loaded on demand, written later."""

    ENTRY_SIZE: int
    MAY_BE_MISSING = False

    def __init__(self, storage: Storage, path: str, base_offset: int, *, max_bytes: int, new: bool) -> None:
        self.path = path
        self.base_offset = base_offset
        self.max_entries = max(1, max_bytes // self.ENTRY_SIZE)
        self._storage = storage
        self._loaded = new
        self._written = 0  # entries in the file
        self._stale_file = new  # the file may hold more than `_written`
        self.unsynced = not new  # an existing file may have unsynced changes of an earlier process

    @abstractmethod
    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or above ``offset``."""

    @abstractmethod
    def _parse(self, data: bytes) -> int:
        """Load the entries of a file up to the first one out of order; return their number."""

    @abstractmethod
    def _pack(self, start: int) -> bytes:
        """Encode the entries from ``start`` on."""

    @abstractmethod
    def _cut(self, count: int) -> None:
        """Keep only the first ``count`` entries in memory."""

    @abstractmethod
    def _count(self) -> int:
        """Return the number of entries in memory."""

    def __len__(self) -> int:
        self._load()
        return self._count()

    @property
    def is_loaded(self) -> bool:
        """Whether the entries are in memory, so that a look-up does not read the file."""
        return self._loaded

    def _load(self) -> None:
        if self._loaded:
            return
        data = self._read()
        if len(data) % self.ENTRY_SIZE:
            raise CorruptIndexError(self.path, f"has {len(data)} bytes, not a multiple of {self.ENTRY_SIZE}")
        if self._parse(data) < len(data) // self.ENTRY_SIZE:
            raise CorruptIndexError(self.path, "is not in increasing order")
        self._written = self._count()
        self._loaded = True

    def salvage(self) -> None:
        """Load the plausible entries of a file after a crash, up to the first malformed one.

        Raises:
            CorruptIndexError: there is no file.
            OSError: the disk failed.
        """
        data = self._read()
        self._parse(data[: len(data) // self.ENTRY_SIZE * self.ENTRY_SIZE])
        self._written = self._count()
        self._loaded = self._stale_file = True

    def _read(self) -> bytes:
        try:
            return self._storage.read_file(self.path)
        except FileNotFoundError:
            if self.MAY_BE_MISSING:
                return b""
            raise CorruptIndexError(self.path, "is missing") from None

    def _read_last(self) -> bytes:
        """Read the last entry from the file, without loading the others; return nothing when there is none."""
        try:
            file = self._storage.open(self.path, read_only=True)
        except FileNotFoundError:
            raise CorruptIndexError(self.path, "is missing") from None
        try:
            size = file.size()
            if size % self.ENTRY_SIZE:
                raise CorruptIndexError(self.path, f"has {size} bytes, not a multiple of {self.ENTRY_SIZE}")
            last = file.read_at(size - self.ENTRY_SIZE, self.ENTRY_SIZE) if size else b""
        finally:
            file.close()
        if size > self.ENTRY_SIZE and not any(last):
            raise CorruptIndexError(self.path, "ends with zeros")  # preallocated space that its writer did not cut off
        return last

    def clear(self) -> None:
        """Drop all entries for a rebuild; the next `write` updates the file."""
        self._loaded = True
        self._cut(0)
        self._written = 0
        self._stale_file = True

    def keep_first(self, count: int) -> None:
        """Drop all entries but the first ``count``."""
        if count < len(self):
            self._cut(count)
            self._written = min(self._written, count)
            self._stale_file = True

    def write(self) -> None:
        """Write new entries to the file, and cut off dropped ones. Raises `OSError`."""
        if not self._loaded or (self._written == self._count() and not self._stale_file):
            return
        if self.MAY_BE_MISSING and not self._count() and not self._storage.exists(self.path):
            return
        file = self._storage.open(self.path, create=True)
        try:
            if self._stale_file and file.size() > self._written * self.ENTRY_SIZE:
                file.truncate(self._written * self.ENTRY_SIZE)
                self.unsynced = True
            if self._written < self._count():
                file.write_at(self._written * self.ENTRY_SIZE, self._pack(self._written))
                self.unsynced = True
            self._written = self._count()
            self._stale_file = False
        finally:
            file.close()


class OffsetIndex(IndexFile):
    """Maps offsets to positions. An entry has the last offset of a batch and the position of its first byte."""

    ENTRY_SIZE = 8

    def __init__(self, storage: Storage, path: str, base_offset: int, *, max_bytes: int, new: bool) -> None:
        super().__init__(storage, path, base_offset, max_bytes=max_bytes, new=new)
        self._offsets = array("I")
        self._positions = array("I")

    @property
    def is_full(self) -> bool:
        """Whether the index, which is loaded, has no room for another entry; the segment must be rolled then."""
        return len(self._offsets) >= self.max_entries

    def append(self, offset: int, position: int) -> None:
        """Add an entry; both must be above the last one's. Raises `CorruptIndexError` otherwise."""
        if not self._loaded:
            self._load()
        relative = offset - self.base_offset
        if not 0 <= relative <= _MAX_RELATIVE_OFFSET or not 0 <= position <= _MAX_POSITION:
            raise CorruptIndexError(self.path, f"offset {offset} at {position} does not fit into an index entry")
        if self._offsets and (relative <= self._offsets[-1] or position <= self._positions[-1]):
            last = self.base_offset + self._offsets[-1]
            raise CorruptIndexError(self.path, f"offset {offset} at {position} follows {last} at {self._positions[-1]}")
        self._offsets.append(relative)
        self._positions.append(position)

    def reaches(self, position: int) -> bool:
        """Whether ``position`` fits into an entry."""
        return position <= _MAX_POSITION

    def lookup(self, offset: int) -> tuple[int, int]:
        """The entry with the greatest offset at or below ``offset``; base offset and 0 when there is none."""
        self._load()
        relative = offset - self.base_offset
        found = bisect_right(self._offsets, relative) - 1 if relative >= 0 else -1
        return self._entry(found)

    def lookup_position(self, position: int) -> tuple[int, int]:
        """The entry with the greatest position at or below ``position``; base offset and 0 when there is none."""
        self._load()
        return self._entry(bisect_right(self._positions, position) - 1)

    def _entry(self, index: int) -> tuple[int, int]:
        return (
            (self.base_offset + self._offsets[index], self._positions[index]) if index >= 0 else (self.base_offset, 0)
        )

    @property
    def last(self) -> tuple[int, int]:
        """The last entry; base offset and 0 when there is none."""
        if self._loaded:
            return self._entry(self._count() - 1)
        relative, position = _OFFSET_ENTRY.unpack(self._read_last() or bytes(self.ENTRY_SIZE))
        return self.base_offset + relative, position

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or above ``offset``."""
        self.keep_first(bisect_left(self._offsets, max(0, offset - self.base_offset)) if len(self) else 0)

    def entries(self) -> list[tuple[int, int]]:
        """All entries as (offset, position)."""
        return [self._entry(index) for index in range(len(self))]

    def check_bounds(self, log_size: int) -> None:
        """Raise `CorruptIndexError` when a loaded entry points behind the end of the log."""
        if self._positions and self._positions[-1] >= log_size:
            raise CorruptIndexError(self.path, f"points to byte {self._positions[-1]} of a log of {log_size}")

    def _parse(self, data: bytes) -> int:
        fields = _unsigned(data)
        offsets, positions = fields[0::2], fields[1::2]
        good = min(_increasing(offsets), _increasing(positions))
        self._offsets, self._positions = offsets[:good], positions[:good]
        return good

    def _pack(self, start: int) -> bytes:
        fields = array("I", bytes(8 * (len(self._offsets) - start)))
        fields[0::2], fields[1::2] = self._offsets[start:], self._positions[start:]
        return _big_endian(fields)

    def _cut(self, count: int) -> None:
        del self._offsets[count:], self._positions[count:]

    def _count(self) -> int:
        return len(self._offsets)


class TimeIndex(IndexFile):
    """Maps timestamps to offsets. An entry means: no record up to this offset has a later timestamp."""

    ENTRY_SIZE = 12

    def __init__(self, storage: Storage, path: str, base_offset: int, *, max_bytes: int, new: bool) -> None:
        super().__init__(storage, path, base_offset, max_bytes=max_bytes, new=new)
        self._timestamps = array("q")
        self._offsets = array("I")

    @property
    def is_full(self) -> bool:
        """Whether the index, which is loaded, has only the slot for the entry left that is written at the roll."""
        return len(self._timestamps) >= self.max_entries - 1

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if ``timestamp`` is above the last entry's."""
        if not self._loaded:
            self._load()
        if timestamp < 0 or (self._timestamps and timestamp <= self._timestamps[-1]):
            return
        relative = offset - self.base_offset
        if not 0 <= relative <= _MAX_RELATIVE_OFFSET or (self._offsets and relative < self._offsets[-1]):
            raise CorruptIndexError(self.path, f"offset {offset} cannot follow {self.last}")
        self._timestamps.append(timestamp)
        self._offsets.append(relative)

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """The entry with the greatest timestamp at or below ``timestamp``; -1 and the base offset if none."""
        self._load()
        return self._entry(bisect_right(self._timestamps, timestamp) - 1)

    @property
    def last(self) -> tuple[int, int]:
        """The last entry as (timestamp, offset); -1 and the base offset when there is none."""
        if self._loaded:
            return self._entry(self._count() - 1)
        last = self._read_last()
        if not last:
            return -1, self.base_offset
        timestamp, relative = _TIME_ENTRY.unpack(last)
        return timestamp, self.base_offset + relative

    def _entry(self, index: int) -> tuple[int, int]:
        return (
            (self._timestamps[index], self.base_offset + self._offsets[index]) if index >= 0 else (-1, self.base_offset)
        )

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or above ``offset``."""
        self.keep_first(bisect_left(self._offsets, max(0, offset - self.base_offset)) if len(self) else 0)

    def entries(self) -> list[tuple[int, int]]:
        """All entries as (timestamp, offset)."""
        return [self._entry(index) for index in range(len(self))]

    def _parse(self, data: bytes) -> int:
        words = _unsigned(data)
        timestamps = array("q", bytes(8 * (len(words) // 3)))
        pairs = array("I", timestamps.tobytes())
        high, low = (0, 1) if sys.byteorder == "big" else (1, 0)
        pairs[high::2], pairs[low::2] = words[0::3], words[1::3]
        timestamps = array("q", pairs.tobytes())
        offsets = words[2::3]
        good = min(_increasing(timestamps), _increasing(offsets, or_equal=True))
        self._timestamps, self._offsets = timestamps[:good], offsets[:good]
        return good

    def _pack(self, start: int) -> bytes:
        timestamps = array("I", self._timestamps[start:].tobytes())
        high, low = (0, 1) if sys.byteorder == "big" else (1, 0)
        words = array("I", bytes(12 * (len(self._timestamps) - start)))
        words[0::3], words[1::3], words[2::3] = timestamps[high::2], timestamps[low::2], self._offsets[start:]
        return _big_endian(words)

    def _cut(self, count: int) -> None:
        del self._timestamps[count:], self._offsets[count:]

    def _count(self) -> int:
        return len(self._timestamps)


def _unsigned(data: Buffer) -> array[int]:
    words = array("I", bytes(data))
    if sys.byteorder == "little":
        words.byteswap()
    return words


def _big_endian(words: array[int]) -> bytes:
    if sys.byteorder == "little":
        words.byteswap()
    return words.tobytes()


def _increasing(values: array[int], *, or_equal: bool = False) -> int:
    """Return the length of the increasing run at the beginning of ``values``."""
    wrong = (index for index, (a, b) in enumerate(pairwise(values), 1) if a > b or (a == b and not or_equal))
    return next(wrong, len(values))
