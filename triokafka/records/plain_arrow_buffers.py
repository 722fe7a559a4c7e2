"""Byte strings and integers out of Arrow buffers, in plain Python. Twin and oracle of ``_arrow_buffers``.

The same interface as ``_arrow_buffers`` with equal results; ``triokafka.kernels`` chooses it if that one is not
compiled.
"""

from __future__ import annotations

import operator
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from triokafka.structs import Buffer

NULLS: Final = 0
"""Layouts of a chunk of byte strings: all null,"""
BINARY: Final = 1
"""offsets of 32 bits,"""
LARGE: Final = 2
"""offsets of 64 bits,"""
FIXED: Final = 3
"""all of one width,"""
VIEW: Final = 4
"""views of 16 bytes into one or several buffers,"""
DICTIONARY: Final = 5
"""and numbers of entries of another chunk."""

MIN_INT64: Final = -(1 << 63)
MAX_INT64: Final = (1 << 63) - 1

_VIEW_SIZE: Final = 16
_LONGEST_INLINE: Final = 12
_OFFSET_SIZES: Final = {BINARY: 4, LARGE: 8}


class BytesChunk(NamedTuple):
    """Part of an Arrow column of byte strings: ``length`` strings from index ``offset`` of the buffers on.

    ``starts`` holds offsets or views, ``data`` the bytes, ``more`` the buffers that views point into. ``indices`` are
    64-bit numbers of entries of ``dictionary``, -1 for null. ``owner`` keeps the buffers' memory alive.
    """

    layout: int
    length: int
    offset: int = 0
    validity: Buffer | None = None
    starts: Buffer | None = None
    data: Buffer | None = None
    more: Sequence[Buffer] = ()
    width: int = 0
    indices: Buffer | None = None
    dictionary: BytesChunk | None = None
    owner: object = None


class IntegerChunk(NamedTuple):
    """Part of an Arrow column of integers. ``code`` is their type code in the standard library's ``array``.

    A value is the integer times ``multiplier``, divided by ``divisor`` and rounded down.
    """

    code: str
    length: int
    offset: int = 0
    validity: Buffer | None = None
    data: Buffer | None = None
    multiplier: int = 1
    divisor: int = 1
    owner: object = None


def broken(reason: str) -> ValueError:
    """Return the error for inconsistent Arrow buffers."""
    return ValueError(f"the Arrow array is broken: {reason}")


def copy_integers(
    chunk: IntegerChunk, out: array[int], at: int, null: int, low: int = MIN_INT64, high: int = MAX_INT64
) -> int:
    """Write the numbers of a chunk into an array of 64-bit integers from ``at`` on, ``null`` for nulls.

    Returns the first position in ``out`` whose number in the chunk is not within ``low`` and ``high``; -1 without one.
    Numbers behind it are not written.

    Raises:
        ValueError: a buffer or ``out`` is too small.
    """
    end = chunk.offset + chunk.length
    if chunk.length < 0 or chunk.offset < 0:
        raise broken(f"its length is {chunk.length}, its offset {chunk.offset}")
    if at < 0 or at + chunk.length > len(out):
        raise ValueError(f"{chunk.length} numbers at {at} do not fit {len(out)}")
    if not chunk.length:
        return -1
    width = array(chunk.code).itemsize
    code: Any = chunk.code  # a type code that memoryview supports
    numbers = _checked(chunk.data, end * width)[: end * width].cast(code)
    validity = None if chunk.validity is None else _checked(chunk.validity, (end + 7) // 8)
    for number in range(chunk.offset, end):
        position = at + number - chunk.offset
        if validity is not None and not validity[number >> 3] >> (number & 7) & 1:
            out[position] = null
        elif low <= numbers[number] <= high:
            out[position] = numbers[number] * chunk.multiplier // chunk.divisor
        else:
            return position
    return -1


def copy_numbers(numbers: list[Any], out: array[int], null: int, low: int = MIN_INT64, high: int = MAX_INT64) -> int:
    """Write a list of integers to the beginning of an array of 64-bit integers, ``null`` for None.

    Returns the first position whose element is not within ``low`` and ``high`` or is not an integer (a `bool` counts as
    none); -1 without one. Numbers behind it are not written.

    Raises:
        ValueError: ``out`` is too small.
    """
    if len(out) < len(numbers):
        raise ValueError(f"{len(numbers)} numbers at 0 do not fit {len(out)}")
    for position, given in enumerate(numbers):
        if given is None:
            out[position] = null
            continue
        if isinstance(given, bool):
            return position
        try:
            number = operator.index(given)
        except TypeError:
            return position
        if not low <= number <= high:
            return position
        out[position] = number
    return -1


class _Chunk:
    """A chunk whose buffer sizes match its length."""

    def __init__(self, chunk: BytesChunk) -> None:
        length, end = chunk.length, chunk.offset + chunk.length
        if length < 0 or chunk.offset < 0 or chunk.width < 0:
            raise broken(f"its length is {length}, its offset {chunk.offset}, its width {chunk.width}")
        self.chunk = chunk
        self.length = length
        self.validity = None
        if chunk.validity is not None and length:
            self.validity = _checked(chunk.validity, (end + 7) // 8)
        needed = 0
        if chunk.layout in _OFFSET_SIZES and length:
            needed = (end + 1) * _OFFSET_SIZES[chunk.layout]
        elif chunk.layout == VIEW:
            needed = end * _VIEW_SIZE
        self.starts = _checked(chunk.starts, needed)
        self.data = _checked(chunk.data, end * chunk.width if chunk.layout == FIXED else 0)
        self.more = [_checked(buffer, 0) for buffer in chunk.more]
        self.indices = _checked(chunk.indices, 8 * length).cast("q") if chunk.layout == DICTIONARY else None
        self.dictionary = None if chunk.dictionary is None else _Chunk(chunk.dictionary)

    def read(self, position: int) -> bytes | None:
        chunk = self.chunk
        index = chunk.offset + position
        if chunk.layout == NULLS or (self.validity is not None and not self.validity[index >> 3] >> (index & 7) & 1):
            return None
        if chunk.layout == DICTIONARY:
            assert self.indices is not None and self.dictionary is not None, "a dictionary chunk has both"
            entry = self.indices[position]
            if entry < 0:
                return None
            if entry >= self.dictionary.length:
                raise broken(f"entry {entry} of a dictionary of {self.dictionary.length}")
            return self.dictionary.read(entry)
        if chunk.layout == FIXED:
            return self._part(self.data, index * chunk.width, chunk.width)
        if chunk.layout == VIEW:
            return self._view(index * _VIEW_SIZE)
        size = _OFFSET_SIZES[chunk.layout]
        at = index * size
        first = int.from_bytes(self.starts[at : at + size], "little", signed=True)
        last = int.from_bytes(self.starts[at + size : at + 2 * size], "little", signed=True)
        if chunk.layout == LARGE and not 0 <= first <= last:
            raise broken(f"an offset of {first} is followed by one of {last}")
        return self._part(self.data, first, last - first)

    def _view(self, at: int) -> bytes:
        length = int.from_bytes(self.starts[at : at + 4], "little", signed=True)
        if 0 <= length <= _LONGEST_INLINE:
            return bytes(self.starts[at + 4 : at + 4 + length])
        number = int.from_bytes(self.starts[at + 8 : at + 12], "little", signed=True)
        start = int.from_bytes(self.starts[at + 12 : at + 16], "little", signed=True)
        if not 0 <= number < len(self.more):
            raise broken(f"a view into buffer {number} of {len(self.more)}")
        return self._part(self.more[number], start, length)

    def _part(self, data: memoryview, start: int, size: int) -> bytes:
        if start < 0 or size < 0 or start + size > len(data):
            raise broken(f"bytes {start} to {start + size} of a buffer of {len(data)}")
        return bytes(data[start : start + size])


class BytesColumn:
    """A column of byte strings and nulls: a list of ``append`` arguments, or the chunks of an Arrow column.

    Raises:
        ValueError: a buffer is too small for the length of its chunk.
    """

    def __init__(self, source: list[Any] | None = None, chunks: Sequence[BytesChunk] = ()) -> None:
        self._items = source
        self._chunks = [_Chunk(chunk) for chunk in chunks if chunk.length]
        self._starts: list[int] = []
        self._length = 0
        for chunk in self._chunks:
            self._starts.append(self._length)
            self._length += chunk.length

    def __len__(self) -> int:
        return self._length if self._items is None else len(self._items)

    def __getitem__(self, position: int) -> Any:
        """Return the object at a position; bytes or None from Arrow.

        Raises:
            IndexError: the position does not exist.
            ValueError: its offsets point out of the buffers, or its length is negative.
        """
        if not 0 <= position < len(self):
            raise IndexError(f"position {position} of a column of {len(self)}")
        if self._items is not None:
            return self._items[position]
        number = bisect_right(self._starts, position) - 1
        return self._chunks[number].read(position - self._starts[number])


def _checked(buffer: Buffer | None, needed: int) -> memoryview:
    view = memoryview(b"" if buffer is None else buffer).cast("B")
    if len(view) < needed:
        raise broken(f"a buffer has {len(view)} bytes, not the {needed} that it needs")
    return view
