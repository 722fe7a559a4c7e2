# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# mypy: ignore-errors
"""The columnar kernel, to be compiled: records to Arrow buffers. Never imported as Python (``triokafka.kernels``).

The twin, ``plain_columns``, has the same interface with types and docstrings. Nothing here relies on bounds that Cython
would check: every read is preceded by a comparison with the end of the record, and every buffer has room for all
records and bytes of a payload before its loop starts.
"""

from __future__ import annotations

import cython
from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytearray import (
    PyByteArray_AS_STRING,
    PyByteArray_FromStringAndSize,
    PyByteArray_GET_SIZE,
    PyByteArray_Resize,
)
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cython.cimports.cpython.unicode import PyUnicode_DecodeUTF8
from cython.cimports.libc.string import memcpy, memmove, memset
from cython.cimports.triokafka.records._lz4_block import decompress_block
from cython.cimports.triokafka.records._wire import (
    ORDER,
    Record,
    check_headers,
    int32,
    int64,
    ordinary_batch,
    read_long_record,
    read_short_record,
    read_varint,
)

from triokafka.checksum import crc32c
from triokafka.records.compression import is_lz4_header
from triokafka.records.corruption import FAULTS, corrupt_batch, corrupt_record
from triokafka.records.plain_columns import (
    HEADERS,
    KEY,
    LARGEST_UNPACKED,
    MAX_COLUMN_BYTES,
    OFFSET,
    TIMESTAMP,
    VALUE,
    BinaryBuffers,
    ColumnBuffers,
    HeaderBuffers,
)

_HEADERS = cython.declare(cython.int, HEADERS)
_KEY = cython.declare(cython.int, KEY)
_OFFSET = cython.declare(cython.int, OFFSET)
_TIMESTAMP = cython.declare(cython.int, TIMESTAMP)
_VALUE = cython.declare(cython.int, VALUE)
_LARGEST = cython.declare(cython.Py_ssize_t, MAX_COLUMN_BYTES)
_SMALLEST_RECORD = cython.declare(cython.Py_ssize_t, 6)
_FIELDS = cython.declare(cython.Py_ssize_t, 4)
_GREATEST = cython.declare(cython.longlong, 2**63 - 1)
_LEAST = cython.declare(cython.longlong, -_GREATEST - 1)
_MOST_MILLISECONDS = cython.declare(cython.longlong, (2**63 - 1) // 1000)
_LZ4 = cython.declare(cython.int, 3)
_LZ4_HEADER = cython.declare(cython.Py_ssize_t, 7)
_LZ4_STORED = cython.declare(cython.uint, 1 << 31)
_LARGEST_UNPACKED = cython.declare(cython.Py_ssize_t, LARGEST_UNPACKED)
# Blocks of at most this size are decompressed in place: they fit a cache, and need no other memory.
_IN_PLACE = cython.declare(cython.Py_ssize_t, 1 << 20)
# from this many compressed bytes on, the interpreter lock is released
_LONG = cython.declare(cython.Py_ssize_t, 16 << 10)

# The buffer for decompression, kept for the next batches; None while a caller has it.
_spare: bytearray | None = bytearray()


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _microseconds(milliseconds: cython.longlong) -> cython.longlong:
    """Convert milliseconds to microseconds. Brokers accept any number as a time: clamp to the smallest or greatest."""
    if milliseconds > _MOST_MILLISECONDS:
        return _GREATEST
    if milliseconds < -_MOST_MILLISECONDS:
        return _LEAST
    return milliseconds * 1000


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _find_fields(
    place: cython.pointer(cython.p_const_uchar),
    base: cython.p_const_uchar,
    stop: cython.p_const_uchar,
    records: cython.Py_ssize_t,
    previous_place: cython.p_longlong,
    last_delta: cython.longlong,
    base_offset: cython.longlong,
    base_timestamp: cython.ulonglong,
    offsets: cython.p_longlong,
    timestamps: cython.p_longlong,
    fields: cython.p_uint,
    ends: cython.p_uint,
    failure: cython.p_int,
) -> cython.Py_ssize_t:
    """Walk over ``records`` records; find their offsets, their timestamps, and the places of key, value and headers.

    ``fields`` gets four numbers per record, positions counted from ``base``: key position, key size plus 1 (0 is null),
    and the same for the value. ``ends``, unless NULL, gets the end of each record. Returns the number of valid records;
    if that is not all, ``failure`` has the reason.
    """
    p: cython.p_const_uchar = place[0]
    previous_delta: cython.longlong = previous_place[0]
    index: cython.Py_ssize_t = 0
    found = cython.declare(Record)
    closer = cython.declare(Record)
    while index < records:
        if stop - p >= 16 and read_short_record(p, stop, cython.address(found)):
            pass
        else:
            failure[0] = read_long_record(p, stop, cython.address(closer))
            if failure[0]:
                break
            found = closer
        if found.delta <= previous_delta or found.delta > last_delta:
            failure[0] = ORDER
            break
        offsets[index] = base_offset + found.delta
        timestamps[index] = _microseconds(
            cython.cast(cython.longlong, base_timestamp + cython.cast(cython.ulonglong, found.elapsed))
        )
        fields[0] = cython.cast(cython.uint, found.key - base)
        fields[1] = cython.cast(cython.uint, found.key_size + 1)
        fields[2] = cython.cast(cython.uint, found.value - base)
        fields[3] = cython.cast(cython.uint, found.value_size + 1)
        fields += _FIELDS
        if ends != cython.NULL:
            ends[index] = cython.cast(cython.uint, found.end - base)
        p = found.end
        previous_delta = found.delta
        index += 1
    if failure[0] == 0:
        place[0] = p
    previous_place[0] = previous_delta
    return index


@cython.final
@cython.cclass
class _Growing:
    """A byte buffer that grows at its end."""

    data: bytearray
    used: cython.Py_ssize_t

    def __cinit__(self):
        self.data = bytearray()

    @cython.cfunc
    def reserve(self, extra: cython.Py_ssize_t) -> cython.p_uchar:
        """Make room for ``extra`` more bytes; return the position where they start."""
        needed: cython.Py_ssize_t = self.used + extra
        if needed > PyByteArray_GET_SIZE(self.data):
            if self.used == 0:
                self.data = PyByteArray_FromStringAndSize(cython.NULL, needed)
            else:
                PyByteArray_Resize(self.data, needed + (needed >> 1))
        return cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.data)) + self.used

    @cython.cfunc
    def finish(self) -> bytearray:
        PyByteArray_Resize(self.data, self.used)
        return self.data


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _clear_bit(bits: cython.p_uchar, index: cython.Py_ssize_t) -> cython.void:
    bits[index >> 3] &= ~(1 << (index & 7))


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _clear_nulls(
    bits: cython.p_uchar, row: cython.Py_ssize_t, rows: cython.Py_ssize_t, fields: cython.p_uint
) -> cython.void:
    """Clear the validity bits of the nulls among ``rows`` fields, writing each byte once."""
    index: cython.Py_ssize_t
    cleared: cython.uint = 0
    bits += row >> 3
    row &= 7
    for index in range(rows):
        cleared |= cython.cast(cython.uint, fields[_FIELDS * index + 1] == 0) << row
        row += 1
        if row == 8:
            bits[0] &= ~cleared
            bits += 1
            cleared = 0
            row = 0
    if row:
        bits[0] &= ~cleared


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _clear_all(bits: cython.p_uchar, row: cython.Py_ssize_t, rows: cython.Py_ssize_t) -> cython.void:
    while rows and row & 7:
        _clear_bit(bits, row)
        row += 1
        rows -= 1
    memset(bits + (row >> 3), 0, rows >> 3)
    row += rows & ~7
    rows &= 7
    while rows:
        _clear_bit(bits, row)
        row += 1
        rows -= 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put_view(
    place: cython.p_uint,
    base: cython.p_const_uchar,
    position: cython.uint,
    size: cython.uint,
    number: cython.uint,
    shift: cython.uint,
) -> cython.void:
    """Write Arrow's 16-byte view: the length, then the bytes themselves or their first four and their position."""
    if size > 13:
        place[0] = size - 1
        memcpy(place + 1, base + position, 4)
        place[2] = number
        place[3] = position + shift
    else:
        place[0] = 0
        place[1] = 0
        place[2] = 0
        place[3] = 0
        if size > 1:
            place[0] = size - 1
            memcpy(place + 1, base + position, size - 1)


@cython.cfunc
@cython.exceptval(-1)
def _reserve_valid(valid: _Growing, row: cython.Py_ssize_t, rows: cython.Py_ssize_t) -> cython.int:
    """Make a validity bitmap of ``row + rows`` bits with the new bits set."""
    size: cython.Py_ssize_t = (row + rows + 7) >> 3
    if size > valid.used:
        memset(valid.reserve(size - valid.used), 0xFF, size - valid.used)
        valid.used = size
    return 0


@cython.final
@cython.cclass
class _Binary:
    """A nullable binary column under construction."""

    views: cython.bint
    nulls: cython.longlong
    valid: _Growing
    offsets: _Growing
    data: _Growing

    def __cinit__(self, views: cython.bint):
        self.views = views
        self.valid = _Growing()
        self.offsets = _Growing()
        self.data = _Growing()
        if not views:
            memset(self.offsets.reserve(4), 0, 4)
            self.offsets.used = 4

    @cython.cfunc
    @cython.exceptval(-1)
    def fill(
        self,
        row: cython.Py_ssize_t,
        rows: cython.Py_ssize_t,
        base: cython.p_const_uchar,
        fields: cython.p_uint,
        number: cython.uint,
        shift: cython.uint,
    ) -> cython.int:
        """Add ``rows`` byte strings behind ``row``; ``fields`` has position and size plus 1 of each.

        The strings may lie in the free part of the column's own buffer. There is enough room in that case, and every
        string moves towards the beginning or stays.
        """
        index: cython.Py_ssize_t
        size: cython.uint
        nulls: cython.Py_ssize_t = 0
        total: cython.Py_ssize_t = 0
        place: cython.p_uint
        _reserve_valid(self.valid, row, rows)
        for index in range(rows):
            nulls += fields[_FIELDS * index + 1] == 0
            total += fields[_FIELDS * index + 1]
        total -= rows - nulls
        if nulls == rows:
            _clear_all(cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.valid.data)), row, rows)
        elif nulls:
            _clear_nulls(cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.valid.data)), row, rows, fields)
        self.nulls += nulls
        if self.views:
            place = cython.cast(cython.p_uint, self.offsets.reserve(16 * rows))
            if nulls == rows:
                memset(place, 0, 16 * rows)
            else:
                for index in range(rows):
                    _put_view(place + 4 * index, base, fields[0], fields[1], number, shift)
                    fields += _FIELDS
            self.offsets.used += 16 * rows
            return 0
        place = cython.cast(cython.p_uint, self.offsets.reserve(4 * rows))
        data: cython.p_uchar = self.data.reserve(total)
        used: cython.uint = cython.cast(cython.uint, self.data.used)
        if total == 0:
            for index in range(rows):
                place[index] = used
        else:
            for index in range(rows):
                size = fields[1]
                if size > 1:
                    memmove(data, base + fields[0], size - 1)
                    data += size - 1
                    used += size - 1
                place[index] = used
                fields += _FIELDS
        self.data.used += total
        self.offsets.used += 4 * rows
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def add(self, row: cython.Py_ssize_t, start: cython.p_const_uchar, size: cython.longlong) -> cython.int:
        """Copy one value into the column; ``size`` -1 is null."""
        _reserve_valid(self.valid, row, 1)
        place: cython.p_uint = cython.cast(cython.p_uint, self.offsets.reserve(4))
        if size < 0:
            _clear_bit(cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.valid.data)), row)
            self.nulls += 1
        else:
            memcpy(self.data.reserve(size), start, size)
            self.data.used += size
        place[0] = cython.cast(cython.uint, self.data.used)
        self.offsets.used += 4
        return 0

    @cython.cfunc
    def finish(self):
        data = None if self.views else self.data.finish()
        return BinaryBuffers(self.valid.finish(), self.nulls, self.offsets.finish(), data)


def multiples(step: cython.Py_ssize_t, count: cython.Py_ssize_t):
    """``count`` multiples of ``step`` from 0 on, as 32-bit integers."""
    index: cython.Py_ssize_t
    if step < 0 or count < 0 or step * count > _LARGEST:
        raise ValueError("the multiples do not fit 32 bits")
    out: bytearray = PyByteArray_FromStringAndSize(cython.NULL, 4 * count)
    place: cython.p_uint = cython.cast(cython.p_uint, PyByteArray_AS_STRING(out))
    for index in range(count):
        place[index] = cython.cast(cython.uint, index * step)
    return out


def time_beyond(times):
    """Return the first row of a timestamp column that is clamped to the smallest or greatest value; -1 without one."""
    view = cython.declare(Py_buffer)
    row: cython.Py_ssize_t
    found: cython.Py_ssize_t = -1
    PyObject_GetBuffer(times, cython.address(view), PyBUF_SIMPLE)
    place: cython.p_const_longlong = cython.cast(cython.p_const_longlong, view.buf)
    for row in range(view.len // 8):
        if place[row] == _GREATEST or place[row] == _LEAST:
            found = row
            break
    PyBuffer_Release(cython.address(view))
    return found


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _packed_batch(
    p: cython.p_const_uchar, available: cython.Py_ssize_t, limit: cython.longlong, from_offset: cython.longlong
) -> cython.Py_ssize_t:
    """Return the size of the batch at ``p`` if it is as ``ordinary_batch`` requires, apart from being lz4; else 0.

    Only decompression can show whether its record count is possible.
    """
    if available < 61 or p[16] != 2:
        return 0
    size: cython.longlong = cython.cast(cython.longlong, int32(p + 8)) + 12
    base_offset: cython.longlong = int64(p)
    last_delta: cython.longlong = int32(p + 23)
    count: cython.longlong = int32(p + 57)
    if size < 61 or size > available or p[21] != 0 or (p[22] & 0xF7) != _LZ4:
        return 0
    if count < 1 or count > limit or last_delta < count - 1:
        return 0
    if base_offset < from_offset or base_offset >> 62:
        return 0
    return size


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _little(p: cython.p_const_uchar) -> cython.uint:
    return (
        cython.cast(cython.uint, p[0])
        | (cython.cast(cython.uint, p[1]) << 8)
        | (cython.cast(cython.uint, p[2]) << 16)
        | (cython.cast(cython.uint, p[3]) << 24)
    )


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _lz4_blocks(p: cython.p_const_uchar, stop: cython.p_const_uchar, largest: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the number of blocks of a frame that ends at the end of its batch; 0 for any other frame."""
    blocks: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t
    while stop - p >= 4:
        size = _little(p) & ~_LZ4_STORED
        p += 4
        if size == 0:
            return blocks if p == stop else 0
        if size > largest or size > stop - p:
            return 0
        p += size
        blocks += 1
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _unpack_blocks(
    lz4: decompress_block,
    p: cython.p_const_uchar,
    stop: cython.p_const_uchar,
    largest: cython.Py_ssize_t,
    out: cython.p_uchar,
    room: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Decompress the blocks of a frame; return the number of bytes, or -1.

    `_lz4_blocks` has counted the blocks, but their sizes are read again: without the interpreter lock, a buffer may
    change.
    """
    total: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t
    got: cython.Py_ssize_t
    head: cython.uint
    while stop - p >= 4:
        head = _little(p)
        if head == 0:
            return total
        p += 4
        size = head & ~_LZ4_STORED
        if size > largest or size > stop - p or total + largest > room:
            return -1
        if head & _LZ4_STORED:
            memcpy(out + total, p, size)
            got = size
        else:
            got = lz4(
                cython.cast(cython.p_const_char, p),
                cython.cast(cython.p_char, out + total),
                cython.cast(cython.int, size),
                cython.cast(cython.int, largest),
            )
            if got < 0:
                return -1
        total += got
        p += size
    return -1


@cython.cfunc
@cython.exceptval(check=False)
def _unpack(
    lz4: decompress_block,
    frame: cython.p_const_uchar,
    stop: cython.p_const_uchar,
    out: cython.p_uchar,
    room: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Decompress a frame that `ColumnAppender._lz4_room` has checked; return the number of bytes, or -1."""
    unpacked: cython.Py_ssize_t
    largest: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, 1) << (8 + 2 * (frame[5] >> 4))
    if stop - frame < _LONG:
        return _unpack_blocks(lz4, frame + _LZ4_HEADER, stop, largest, out, room)
    with cython.nogil:
        unpacked = _unpack_blocks(lz4, frame + _LZ4_HEADER, stop, largest, out, room)
    return unpacked


@cython.final
@cython.cclass
class ColumnAppender:
    """Collects the records of many batches in columns."""

    rows = cython.declare(cython.Py_ssize_t, visibility="readonly")
    _columns: cython.int
    _views: cython.bint
    _lz4_header: cython.uint  # flags, block descriptor and checksum of the last valid header
    _fields: _Growing
    _ends: _Growing
    _offset: _Growing
    _timestamp: _Growing
    _key: _Binary
    _value: _Binary
    _header_valid: _Growing
    _header_nulls: cython.longlong
    _header_offsets: _Growing
    _header_count: cython.Py_ssize_t
    _filled: cython.Py_ssize_t
    _header_names: _Binary
    _header_values: _Binary

    def __cinit__(self, columns: cython.int, views: cython.bint):
        self._columns = columns
        self._views = views
        self._fields = _Growing()
        self._ends = _Growing()
        self._offset = _Growing()
        self._timestamp = _Growing()
        self._key = _Binary(views)
        self._value = _Binary(views)
        self._header_valid = _Growing()
        self._header_offsets = _Growing()
        memset(self._header_offsets.reserve(4), 0, 4)
        self._header_offsets.used = 4
        self._header_names = _Binary(False)
        self._header_values = _Binary(False)

    def has_room(self, size: cython.Py_ssize_t):
        """Return whether ``size`` more bytes fit every column: Arrow's offsets have 32 bits."""
        used: cython.Py_ssize_t = max(self._key.data.used, self._value.data.used)
        headers: cython.Py_ssize_t = self._header_names.data.used + self._header_values.data.used + self._header_count
        # An invalid byte of a header name becomes a replacement character of three.
        return max(used, headers + 2 * size) + size <= _LARGEST

    def append(
        self,
        limit: cython.Py_ssize_t,
        data,
        position: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        index: cython.longlong,
        count: cython.longlong,
        previous_delta: cython.longlong,
        base_offset: cython.longlong,
        last_delta: cython.longlong,
        base_timestamp: cython.longlong,
        append_time: cython.longlong,
        timestamp_type: cython.int,
        from_offset: cython.longlong,
        number: cython.uint,
        shift: cython.Py_ssize_t,
    ):
        """Add records ``index`` to ``count - 1`` of ``data`` from ``position`` on, at most ``limit``; all or none."""
        view = cython.declare(Py_buffer)
        PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
        try:
            if position < 0 or position > end or end > view.len:
                raise ValueError("the payload lies outside of the buffer")
            if shift < 0 or shift + end > _LARGEST or not self.has_room(end - position):
                raise ValueError("the columns have no room for the payload")
            base: cython.p_const_uchar = cython.cast(cython.p_const_uchar, view.buf) + position
            p: cython.p_const_uchar = base
            stop: cython.p_const_uchar = base + (end - position)
            failure: cython.int = 0
            # No record is smaller, so a wrong count does not make the columns larger than the payload.
            records: cython.Py_ssize_t = max(0, min(min(count - index, limit), (stop - p) // _SMALLEST_RECORD + 1))
            offsets = cython.cast(cython.p_longlong, self._offset.reserve(8 * records + 8))
            timestamps = cython.cast(cython.p_longlong, self._timestamp.reserve(8 * records + 8))
            fields = cython.cast(cython.p_uint, self._fields.reserve(4 * _FIELDS * (records + 1)))
            ends: cython.p_uint = cython.NULL
            if self._columns & _HEADERS:
                ends = cython.cast(cython.p_uint, self._ends.reserve(4 * (records + 1)))
            before: cython.p_const_uchar
            delta_before: cython.longlong
            walked: cython.Py_ssize_t
            while index < count and base_offset + previous_delta + 1 < from_offset and failure == 0:
                before = p
                delta_before = previous_delta
                walked = _find_fields(
                    cython.address(p),
                    base,
                    stop,
                    1,
                    cython.address(previous_delta),
                    last_delta,
                    base_offset,
                    0,
                    offsets,
                    timestamps,
                    fields,
                    ends,
                    cython.address(failure),
                )
                if walked and offsets[0] >= from_offset:
                    p = before
                    previous_delta = delta_before
                    break
                index += walked
            if failure == 0:
                records = max(0, min(records, count - index))
                walked = _find_fields(
                    cython.address(p),
                    base,
                    stop,
                    records,
                    cython.address(previous_delta),
                    last_delta,
                    base_offset,
                    cython.cast(cython.ulonglong, base_timestamp),
                    offsets,
                    timestamps,
                    fields,
                    ends,
                    cython.address(failure),
                )
                index += walked
                if ends != cython.NULL:
                    # A record with bad headers precedes the record that stopped the walk.
                    good: cython.Py_ssize_t = walked
                    bad: cython.int = _check_all_headers(
                        base, fields, ends, cython.address(good), cython.address(self._filled)
                    )
                    if bad:
                        failure = bad
                        index -= walked - good
            if failure:
                raise corrupt_record("", 0, base_offset, index, FAULTS[failure])
            if index == count and p != stop:
                raise corrupt_batch("", 0, base_offset, f"{stop - p} bytes follow its {count} records")
            if timestamp_type == 1:
                _set_all(timestamps, records, append_time)
            self._fill(records, base, fields, ends, number, cython.cast(cython.uint, shift + position))
            return position + (p - base), index, previous_delta
        finally:
            PyBuffer_Release(cython.address(view))

    def append_batches(
        self,
        limit: cython.Py_ssize_t,
        most_bytes: cython.Py_ssize_t,
        data,
        position: cython.Py_ssize_t,
        next_offset: cython.longlong,
        check_crc: cython.bint,
        number: cython.uint,
        lz4: cython.size_t,
    ):
        """Add whole batches while they are ordinary and of one kind; return where and why it stopped."""
        global _spare
        view = cython.declare(Py_buffer)
        PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
        leader_epoch: cython.int = -1
        timestamp_type: cython.int = -1
        room: bytearray | None = None
        base: cython.p_const_uchar
        unpacked: cython.Py_ssize_t
        read: cython.Py_ssize_t = 0
        try:
            start: cython.p_const_uchar = cython.cast(cython.p_const_uchar, view.buf)
            if position < 0 or view.len > _LARGEST:
                return position, next_offset, leader_epoch, timestamp_type, read
            while position < view.len and read < most_bytes:
                p: cython.p_const_uchar = start + position
                size: cython.Py_ssize_t = ordinary_batch(p, view.len - position, limit, next_offset)
                if size:
                    unpacked = size - 61
                elif lz4 and not self._views:
                    size = _packed_batch(p, view.len - position, limit, next_offset)
                    unpacked = self._lz4_room(p + 61, size - 61) if size else 0
                    if unpacked == 0:
                        break
                else:
                    break
                if not self.has_room(unpacked):
                    break
                appended: cython.int = (p[22] >> 3) & 1
                if timestamp_type >= 0 and appended != timestamp_type:
                    break
                if check_crc:
                    checksum: cython.uint = crc32c(data[position + 21 : position + size])
                    if checksum != cython.cast(cython.uint, int32(p + 17)):
                        break
                base = p + 61
                if p[22] & 7:
                    into: cython.p_uchar
                    # Only behind the first batch: its size decides how much room to make, which may move the column.
                    if timestamp_type >= 0 and self._columns & _VALUE and unpacked <= _IN_PLACE:
                        into = self._value.data.reserve(unpacked)
                    else:
                        if room is None:
                            room, _spare = _spare, None
                        if room is None or PyByteArray_GET_SIZE(room) < unpacked:
                            room = PyByteArray_FromStringAndSize(cython.NULL, unpacked)
                        into = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(room))
                    unpacked = _unpack(cython.cast(decompress_block, lz4), p + 61, p + size, into, unpacked)
                    base = into
                    # Room is made for the stated number of records, so that number must be possible.
                    if int32(p + 57) > unpacked // _SMALLEST_RECORD:
                        break
                if timestamp_type < 0:
                    self._expect(int32(p + 57), size, view.len - position, limit, unpacked, most_bytes)
                if not self._append_ordinary(p, base, base + unpacked, number, position + 61, appended):
                    break
                timestamp_type = appended
                leader_epoch = int32(p + 12)
                limit -= int32(p + 57)
                next_offset = int64(p) + int32(p + 23) + 1
                position += size
                read += unpacked
            return position, next_offset, leader_epoch, timestamp_type, read
        finally:
            if room is not None:
                _spare = room
            PyBuffer_Release(cython.address(view))

    @cython.cfunc
    @cython.exceptval(-1)
    def _lz4_room(self, frame: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the maximum number of bytes in the blocks of a frame; 0 for an unusual or too large frame."""
        largest: cython.Py_ssize_t
        blocks: cython.Py_ssize_t
        known: cython.uint
        if size < _LZ4_HEADER + 4:
            return 0
        known = (cython.cast(cython.uint, frame[4]) << 16) | (cython.cast(cython.uint, frame[5]) << 8) | frame[6]
        if frame[0] != 0x04 or frame[1] != 0x22 or frame[2] != 0x4D or frame[3] != 0x18:
            return 0
        if known != self._lz4_header:
            if not is_lz4_header(PyBytes_FromStringAndSize(cython.cast(cython.p_const_char, frame), _LZ4_HEADER)):
                return 0
            self._lz4_header = known
        # Version 1, without checksums and sizes; blocks of 64 KiB, 256 KiB, 1 MiB or 4 MiB.
        if (frame[4] != 0x60 and frame[4] != 0x40) or frame[5] & 0x8F or frame[5] < 0x40:
            return 0
        largest = cython.cast(cython.Py_ssize_t, 1) << (8 + 2 * (frame[5] >> 4))
        blocks = _lz4_blocks(frame + _LZ4_HEADER, frame + size, largest)
        # Blocks may or may not refer to earlier blocks; the first block has none before it.
        if blocks > 1 and frame[4] == 0x40:
            return 0
        return blocks * largest if blocks * largest <= _LARGEST_UNPACKED else 0

    @cython.cfunc
    @cython.exceptval(-1)
    def _expect(
        self,
        records: cython.longlong,
        size: cython.Py_ssize_t,
        rest: cython.Py_ssize_t,
        limit: cython.Py_ssize_t,
        unpacked: cython.Py_ssize_t,
        most_bytes: cython.Py_ssize_t,
    ) -> cython.int:
        """Make room for the rest of a fetch at once, estimated from its first batch: growing in steps copies a lot."""
        batches: cython.longlong = min(rest // size, most_bytes // unpacked) + 1
        rows: cython.longlong = min(records * batches, limit)
        if rows <= records or batches * unpacked > _LARGEST or not self.has_room(batches * unpacked):
            return 0
        if self._columns & _OFFSET:
            self._offset.reserve(8 * rows)
        if self._columns & _TIMESTAMP:
            self._timestamp.reserve(8 * rows)
        if self._columns & _KEY:
            self._key.offsets.reserve((16 if self._views else 4) * rows)
        if self._columns & _VALUE:
            self._value.offsets.reserve((16 if self._views else 4) * rows)
            if not self._views:
                self._value.data.reserve(unpacked * (rows // records + 1))
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def _append_ordinary(
        self,
        batch: cython.p_const_uchar,
        base: cython.p_const_uchar,
        stop: cython.p_const_uchar,
        number: cython.uint,
        shift: cython.Py_ssize_t,
        appended: cython.bint,
    ) -> cython.int:
        """Add all records of one batch and return 1; if any is invalid, add none and return 0.

        They lie between ``base`` and ``stop``; ``base`` is at ``shift`` in the data.
        """
        p: cython.p_const_uchar = base
        records: cython.Py_ssize_t = int32(batch + 57)
        previous_delta: cython.longlong = -1
        failure: cython.int = 0
        if records > (stop - base) // _SMALLEST_RECORD:
            return 0
        offsets = cython.cast(cython.p_longlong, self._offset.reserve(8 * records))
        timestamps = cython.cast(cython.p_longlong, self._timestamp.reserve(8 * records))
        fields = cython.cast(cython.p_uint, self._fields.reserve(4 * _FIELDS * records))
        ends: cython.p_uint = cython.NULL
        if self._columns & _HEADERS:
            ends = cython.cast(cython.p_uint, self._ends.reserve(4 * records))
        _find_fields(
            cython.address(p),
            base,
            stop,
            records,
            cython.address(previous_delta),
            int32(batch + 23),
            int64(batch),
            cython.cast(cython.ulonglong, int64(batch + 27)),
            offsets,
            timestamps,
            fields,
            ends,
            cython.address(failure),
        )
        if failure == 0 and ends != cython.NULL:
            failure = _check_all_headers(base, fields, ends, cython.address(records), cython.address(self._filled))
        if failure or p != stop:
            return 0
        if appended:
            _set_all(timestamps, records, int64(batch + 35))
        self._fill(records, base, fields, ends, number, cython.cast(cython.uint, shift))
        return 1

    @cython.cfunc
    @cython.exceptval(-1)
    def _fill(
        self,
        rows: cython.Py_ssize_t,
        base: cython.p_const_uchar,
        fields: cython.p_uint,
        ends: cython.p_uint,
        number: cython.uint,
        shift: cython.uint,
    ) -> cython.int:
        """Add the records that ``_find_fields`` found to the columns."""
        row: cython.Py_ssize_t = self.rows
        if self._columns & _OFFSET:
            self._offset.used += 8 * rows
        if self._columns & _TIMESTAMP:
            self._timestamp.used += 8 * rows
        if self._columns & _KEY:
            self._key.fill(row, rows, base, fields, number, shift)
        if self._columns & _HEADERS:
            self._fill_headers(row, rows, base, fields, ends)
        if self._columns & _VALUE:  # last: the records may lie where the values go
            self._value.fill(row, rows, base, fields + 2, number, shift)
        self.rows += rows
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def _fill_headers(
        self,
        row: cython.Py_ssize_t,
        rows: cython.Py_ssize_t,
        base: cython.p_const_uchar,
        fields: cython.p_uint,
        ends: cython.p_uint,
    ) -> cython.int:
        index: cython.Py_ssize_t
        p: cython.p_const_uchar
        end: cython.p_const_uchar
        raw: cython.ulonglong = 0
        remaining: cython.ulonglong = 0
        _reserve_valid(self._header_valid, row, rows)
        valid: cython.p_uchar = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self._header_valid.data))
        place: cython.p_uint = cython.cast(cython.p_uint, self._header_offsets.reserve(4 * rows))
        self._header_offsets.used += 4 * rows
        if self._filled == 0:
            _clear_all(valid, row, rows)
            self._header_nulls += rows
            for index in range(rows):
                place[index] = cython.cast(cython.uint, self._header_count)
            return 0
        self._filled = 0
        for index in range(rows):
            p = _after_value(base, fields + _FIELDS * index)
            end = base + ends[index]
            p = read_varint(p, end, 32, cython.address(remaining))
            remaining >>= 1
            if remaining == 0:
                _clear_bit(valid, row + index)
                self._header_nulls += 1
            while remaining:
                p = read_varint(p, end, 32, cython.address(raw))
                self._add_name(p, raw >> 1)
                p += raw >> 1
                p = read_varint(p, end, 32, cython.address(raw))
                if raw == 1:
                    self._header_values.add(self._header_count, p, -1)
                else:
                    self._header_values.add(self._header_count, p, cython.cast(cython.longlong, raw >> 1))
                    p += raw >> 1
                self._header_count += 1
                remaining -= 1
            place[index] = cython.cast(cython.uint, self._header_count)
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def _add_name(self, p: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.int:
        """Return a header's name as valid UTF-8, which Arrow's strings must be, for any bytes."""
        index: cython.Py_ssize_t
        for index in range(size):
            if p[index] > 127:
                name = PyUnicode_DecodeUTF8(cython.cast(cython.p_const_char, p), size, "replace")
                encoded: bytes = name.encode()
                start = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(encoded))
                return self._header_names.add(self._header_count, start, PyBytes_GET_SIZE(encoded))
        return self._header_names.add(self._header_count, p, size)

    def finish(self):
        """Return the columns; the appender must not be used afterwards."""
        columns: cython.int = self._columns
        headers = None
        if columns & _HEADERS:
            headers = HeaderBuffers(
                self._header_valid.finish(),
                self._header_nulls,
                self._header_offsets.finish(),
                self._header_count,
                self._header_names.finish(),
                self._header_values.finish(),
            )
        return ColumnBuffers(
            self.rows,
            self._offset.finish() if columns & _OFFSET else None,
            self._timestamp.finish() if columns & _TIMESTAMP else None,
            self._key.finish() if columns & _KEY else None,
            self._value.finish() if columns & _VALUE else None,
            headers,
        )


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _set_all(timestamps: cython.p_longlong, records: cython.Py_ssize_t, milliseconds: cython.longlong) -> cython.void:
    index: cython.Py_ssize_t
    for index in range(records):
        timestamps[index] = _microseconds(milliseconds)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _after_value(base: cython.p_const_uchar, fields: cython.p_uint) -> cython.p_const_uchar:
    """Return where the headers of a record start."""
    return base + fields[2] + (fields[3] - 1 if fields[3] else 0)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _check_all_headers(
    base: cython.p_const_uchar,
    fields: cython.p_uint,
    ends: cython.p_uint,
    records: cython.pointer(cython.Py_ssize_t),
    filled: cython.pointer(cython.Py_ssize_t),
) -> cython.int:
    """Check the headers of all ``records``. Return 0 if all are valid; ``filled`` has then grown by those that have
    any.

    Else return the fault; ``records`` is the number of records before it.
    """
    p: cython.p_const_uchar
    end: cython.p_const_uchar
    failure: cython.int
    index: cython.Py_ssize_t
    for index in range(records[0]):
        p = _after_value(base, fields + _FIELDS * index)
        end = base + ends[index]
        if end - p == 1 and p[0] == 0:
            continue
        failure = check_headers(p, end)
        if failure:
            records[0] = index
            return failure
        filled[0] += 1
    return 0
