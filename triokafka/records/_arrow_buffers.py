# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# mypy: ignore-errors
"""Byte strings and integers out of Arrow buffers, to be compiled. Never imported as Python (``triokafka.kernels``).

The twin, ``plain_arrow_buffers``, has the same interface with types and docstrings. Buffer sizes are checked at the
construction of a column, and every offset before its use. Each is read once, so buffers may change meanwhile.
"""

from __future__ import annotations

import operator

import cython
from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.cpython.long import PyLong_AsLongLongAndOverflow
from cython.cimports.libc.string import memcpy

from triokafka.records.plain_arrow_buffers import (
    BINARY,
    DICTIONARY,
    FIXED,
    LARGE,
    MAX_INT64,
    MIN_INT64,
    NULLS,
    VIEW,
    BytesChunk,
    IntegerChunk,
    broken,
)

_NULLS = cython.declare(cython.int, NULLS)
_BINARY = cython.declare(cython.int, BINARY)
_LARGE = cython.declare(cython.int, LARGE)
_FIXED = cython.declare(cython.int, FIXED)
_VIEW = cython.declare(cython.int, VIEW)
_DICTIONARY = cython.declare(cython.int, DICTIONARY)
_VIEW_SIZE = cython.declare(cython.Py_ssize_t, 16)
_LONGEST_INLINE = cython.declare(cython.int, 12)
_LARGEST = cython.declare(cython.Py_ssize_t, 1 << 56)  # larger lengths are invalid, and would overflow below


@cython.final
@cython.cclass
class Held:
    """A buffer that is exported as long as this object lives."""

    def __cinit__(self, buffer, needed: cython.Py_ssize_t = 0, writable: cython.bint = False):
        if buffer is not None:
            PyObject_GetBuffer(buffer, cython.address(self.view), PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
            self.holds = True
            self.data = cython.cast(cython.p_const_char, self.view.buf)
            self.size = self.view.len
        if self.size < needed:
            raise broken(f"a buffer has {self.size} bytes, not the {needed} that it needs")

    def __dealloc__(self):
        if self.holds:
            PyBuffer_Release(cython.address(self.view))


def copy_integers(
    chunk: IntegerChunk,
    out,
    at: cython.Py_ssize_t,
    null: cython.longlong,
    low: cython.longlong = MIN_INT64,
    high: cython.longlong = MAX_INT64,
):
    """Write the numbers of a chunk into an array of 64-bit integers, scaled; return the first index out of range."""
    length: cython.Py_ssize_t = chunk.length
    offset: cython.Py_ssize_t = chunk.offset
    multiplier: cython.longlong = chunk.multiplier
    divisor: cython.longlong = chunk.divisor
    code: cython.Py_UCS4 = chunk.code
    width: cython.Py_ssize_t = _width(code)
    _check_lengths(length, offset, 0)
    written: Held = Held(out, 0, True)
    if at < 0 or at > written.size // 8 - length:
        raise ValueError(f"{length} numbers at {at} do not fit {written.size // 8}")
    if not length:
        return -1
    held: Held = Held(chunk.data, (offset + length) * width)
    validity: Held = Held(chunk.validity, (offset + length + 7) // 8 if chunk.validity is not None else 0)
    target: cython.p_longlong = cython.cast(cython.p_longlong, written.data) + at
    number: cython.longlong = 0
    index: cython.Py_ssize_t
    for index in range(offset, offset + length):
        if validity.data and not validity.data[index >> 3] >> (index & 7) & 1:
            target[index - offset] = null
            continue
        if not _read_integer(held.data + index * width, code, cython.address(number)):
            return at + index - offset
        if number < low or number > high:
            return at + index - offset
        number *= multiplier
        if divisor != 1:
            # Rounded down, as Python does.
            number = number // divisor - (number % divisor < 0)
        target[index - offset] = number
    return -1


def copy_numbers(
    numbers: list,
    out,
    null: cython.longlong,
    low: cython.longlong = MIN_INT64,
    high: cython.longlong = MAX_INT64,
):
    """Write a list of integers to the beginning of an array of 64-bit integers; return the first index of a
    non-integer."""
    written: Held = Held(out, 0, True)
    target: cython.p_longlong = cython.cast(cython.p_longlong, written.data)
    position: cython.Py_ssize_t = 0
    number: cython.longlong
    overflow: cython.int = 0
    if written.size // 8 < len(numbers):
        raise ValueError(f"{len(numbers)} numbers at 0 do not fit {written.size // 8}")
    # Converting an object to an integer may run code that changes the list.
    while position < min(len(numbers), written.size // 8):
        given = numbers[position]
        if given is None:
            target[position] = null
            position += 1
            continue
        if type(given) is not int:
            if type(given) is bool:
                return position
            try:
                given = operator.index(given)
            except TypeError:
                return position
        number = PyLong_AsLongLongAndOverflow(given, cython.address(overflow))
        if overflow or number < low or number > high:
            return position
        target[position] = number
        position += 1
    return -1


@cython.cfunc
@cython.exceptval(-1, check=False)
def _width(code: cython.Py_UCS4) -> cython.Py_ssize_t:
    if code == "b" or code == "B":
        return 1
    if code == "h" or code == "H":
        return 2
    if code == "i" or code == "I":
        return 4
    if code == "q" or code == "Q":
        return 8
    raise ValueError(f"no integers are of type {code!r}")


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _read_integer(p: cython.p_const_char, code: cython.Py_UCS4, out: cython.p_longlong) -> cython.bint:
    """Return False if the number has more than 63 bits."""
    short: cython.short = 0
    word: cython.int = 0
    long: cython.longlong = 0
    if code == "q" or code == "Q":
        memcpy(cython.address(long), p, 8)
        out[0] = long
        return code == "q" or long >= 0
    if code == "i" or code == "I":
        memcpy(cython.address(word), p, 4)
        out[0] = word if code == "i" else cython.cast(cython.uint, word)
    elif code == "h" or code == "H":
        memcpy(cython.address(short), p, 2)
        out[0] = short if code == "h" else cython.cast(cython.ushort, short)
    elif code == "b":
        out[0] = cython.cast(cython.schar, p[0])
    else:
        out[0] = cython.cast(cython.uchar, p[0])
    return True


@cython.cfunc
@cython.exceptval(-1, check=False)
def _check_lengths(length: cython.Py_ssize_t, offset: cython.Py_ssize_t, width: cython.Py_ssize_t) -> cython.int:
    if length < 0 or offset < 0 or width < 0:
        raise broken(f"its length is {length}, its offset {offset}, its width {width}")
    if length > _LARGEST or offset > _LARGEST or (width and offset + length > _LARGEST // width):
        raise broken(f"its length is {length}, its offset {offset}, its width {width}")
    return 0


@cython.final
@cython.cclass
class Chunk:
    """A chunk whose buffer sizes match its length."""

    def __cinit__(self, chunk: BytesChunk):
        length: cython.Py_ssize_t = chunk.length
        end: cython.Py_ssize_t
        needed: cython.Py_ssize_t = 0
        self.layout = chunk.layout
        self.width = chunk.width
        self.offset = chunk.offset
        self.length = length
        self.owner = chunk.owner
        _check_lengths(length, self.offset, self.width)
        end = self.offset + length
        if not _NULLS <= self.layout <= _DICTIONARY:
            raise ValueError(f"there is no layout {self.layout}")
        if chunk.validity is not None and length:
            self.validity = Held(chunk.validity, (end + 7) // 8)
        else:
            self.validity = Held(None)
        if self.layout == _BINARY and length:
            needed = (end + 1) * 4
        elif self.layout == _LARGE and length:
            needed = (end + 1) * 8
        elif self.layout == _VIEW:
            needed = end * _VIEW_SIZE
        self.starts = Held(chunk.starts, needed)
        self.data = Held(chunk.data, end * self.width if self.layout == _FIXED else 0)
        self.more = [Held(buffer) for buffer in chunk.more]
        self.indices = Held(chunk.indices, 8 * length if self.layout == _DICTIONARY else 0)
        if chunk.dictionary is not None:
            self.dictionary = Chunk(chunk.dictionary)
        elif self.layout == _DICTIONARY:
            raise ValueError("a dictionary chunk needs its dictionary")

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def read(
        self,
        position: cython.Py_ssize_t,
        data: cython.pointer(cython.p_const_char),
        size: cython.p_Py_ssize_t,
    ) -> cython.int:
        """Find the bytes at a position; size -1 is null. The caller has checked the position."""
        index: cython.Py_ssize_t = self.offset + position
        short_first: cython.int = 0
        short_last: cython.int = 0
        first: cython.longlong = 0
        last: cython.longlong = 0
        data[0] = cython.NULL
        size[0] = -1
        if self.validity.data and not self.validity.data[index >> 3] >> (index & 7) & 1:
            return 0
        if self.layout == _BINARY:
            memcpy(cython.address(short_first), self.starts.data + index * 4, 4)
            memcpy(cython.address(short_last), self.starts.data + index * 4 + 4, 4)
            first, last = short_first, short_last
            return self.part(self.data, first, last - first, data, size)
        if self.layout == _LARGE:
            memcpy(cython.address(first), self.starts.data + index * 8, 8)
            memcpy(cython.address(last), self.starts.data + index * 8 + 8, 8)
            if first < 0 or last < first:
                raise broken(f"an offset of {first} is followed by one of {last}")
            return self.part(self.data, first, last - first, data, size)
        if self.layout == _VIEW:
            return self.view(self.starts.data + index * _VIEW_SIZE, data, size)
        if self.layout == _FIXED:
            return self.part(self.data, index * self.width, self.width, data, size)
        if self.layout == _DICTIONARY:
            memcpy(cython.address(first), self.indices.data + position * 8, 8)
            if first < 0:
                return 0
            if first >= self.dictionary.length:
                raise broken(f"entry {first} of a dictionary of {self.dictionary.length}")
            return self.dictionary.read(first, data, size)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def view(
        self,
        p: cython.p_const_char,
        data: cython.pointer(cython.p_const_char),
        size: cython.p_Py_ssize_t,
    ) -> cython.int:
        length: cython.int = 0
        number: cython.int = 0
        start: cython.int = 0
        held: Held
        memcpy(cython.address(length), p, 4)
        if 0 <= length <= _LONGEST_INLINE:
            data[0] = p + 4
            size[0] = length
            return 0
        memcpy(cython.address(number), p + 8, 4)
        memcpy(cython.address(start), p + 12, 4)
        if not 0 <= number < len(self.more):
            raise broken(f"a view into buffer {number} of {len(self.more)}")
        held = cython.cast(Held, self.more[number])
        return self.part(held, start, length, data, size)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def part(
        self,
        held: Held,
        start: cython.longlong,
        length: cython.longlong,
        data: cython.pointer(cython.p_const_char),
        size: cython.p_Py_ssize_t,
    ) -> cython.int:
        if start < 0 or length < 0 or length > held.size or start > held.size - length:
            raise broken(f"bytes {start} to {start + length} of a buffer of {held.size}")
        data[0] = held.data + start
        size[0] = length
        return 0


@cython.final
@cython.cclass
class BytesColumn:
    """A column of byte strings and nulls: a list of ``append`` arguments, or the chunks of an Arrow column."""

    def __cinit__(self, source: list | None = None, chunks=()):
        chunk: Chunk
        self.items = source
        self.chunks = [Chunk(chunk_given) for chunk_given in chunks if chunk_given.length]
        self.ends = []
        for chunk in self.chunks:
            if chunk.length > _LARGEST - self.length:
                raise broken("its chunks are too long")
            self.length += chunk.length
            self.ends.append(self.length)

    def __len__(self):
        return self.count()

    def __getitem__(self, position: cython.Py_ssize_t):
        """Return the object at a position; bytes or None from Arrow."""
        data: cython.p_const_char = cython.NULL
        size: cython.Py_ssize_t = -1
        if not 0 <= position < self.count():
            raise IndexError(f"position {position} of a column of {self.count()}")
        if self.items is not None:
            return self.items[position]
        self.read(position, cython.address(data), cython.address(size))
        return None if size < 0 else PyBytes_FromStringAndSize(data, size)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def count(self) -> cython.Py_ssize_t:
        return self.length if self.items is None else len(self.items)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def read(
        self,
        position: cython.Py_ssize_t,
        data: cython.pointer(cython.p_const_char),
        size: cython.p_Py_ssize_t,
    ) -> cython.int:
        """Find the bytes at a valid position of an Arrow column."""
        if position < self.low or position >= self.high:
            self.seek(position)
        return self.chunk.read(position - self.low, data, size)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def gather(
        self,
        start: cython.Py_ssize_t,
        count: cython.Py_ssize_t,
        data: cython.pointer(cython.p_const_char),
        sizes: cython.p_Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Do `read` for up to ``count`` positions from ``start`` on, up to the first invalid one in the chunk."""
        chunk: Chunk
        index: cython.Py_ssize_t
        first: cython.int = 0
        last: cython.int = 0
        bit: cython.Py_ssize_t
        starts: cython.p_const_char
        validity: cython.p_const_char
        if start < self.low or start >= self.high:
            self.seek(start)
        chunk = self.chunk
        count = min(count, self.high - start)
        if chunk.layout != _BINARY:
            for index in range(count):
                try:
                    chunk.read(start + index - self.low, cython.address(data[index]), cython.address(sizes[index]))
                except ValueError:
                    return index
            return count
        # The form of most columns. A call per record would cost as much as copying the record.
        bit = chunk.offset + start - self.low
        starts = chunk.starts.data + bit * 4
        validity = chunk.validity.data
        memcpy(cython.address(first), starts, 4)
        for index in range(count):
            memcpy(cython.address(last), starts + (index + 1) * 4, 4)
            if validity != cython.NULL and not validity[(bit + index) >> 3] >> ((bit + index) & 7) & 1:
                data[index] = cython.NULL
                sizes[index] = -1
            elif first < 0 or last < first or last > chunk.data.size:
                return index
            else:
                data[index] = chunk.data.data + first
                sizes[index] = last - first
            first = last
        return count

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def seek(self, position: cython.Py_ssize_t) -> cython.int:
        """Find the chunk that holds a position: the first that ends behind it."""
        low: cython.Py_ssize_t = 0
        high: cython.Py_ssize_t = len(self.ends)
        middle: cython.Py_ssize_t
        while low < high:
            middle = (low + high) // 2
            if cython.cast(cython.Py_ssize_t, self.ends[middle]) > position:
                high = middle
            else:
                low = middle + 1
        self.chunk = self.chunks[low]
        self.high = self.ends[low]
        self.low = self.high - self.chunk.length
        return 0
