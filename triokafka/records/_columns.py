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
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.cpython.unicode import PyUnicode_DecodeUTF8
from cython.cimports.libc.string import memcpy, memset

from triokafka.records.corruption import corrupt_batch, corrupt_record
from triokafka.records.plain_columns import (
    HEADERS,
    KEY,
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
_INLINE = cython.declare(cython.ulonglong, 12)
_SMALLEST_RECORD = cython.declare(cython.Py_ssize_t, 6)

# What the loop can find wrong with a record; 0 is nothing.
_SHORT = cython.declare(cython.int, 1)
_LENGTH = cython.declare(cython.int, 2)
_ORDER = cython.declare(cython.int, 3)
_BAD_KEY = cython.declare(cython.int, 4)
_BAD_VALUE = cython.declare(cython.int, 5)
_HEADER_COUNT = cython.declare(cython.int, 6)
_BAD_HEADER = cython.declare(cython.int, 7)
_SIZE = cython.declare(cython.int, 8)
_REASONS = (
    "",
    "it ends too early",
    "its length is more than the batch holds",
    "its offset is out of order",
    "its key has a wrong length",
    "its value has a wrong length",
    "its header count is more than it holds",
    "a header has a wrong length",
    "its fields do not fill its length",
)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def read_varint(
    p: cython.p_const_uchar, end: cython.p_const_uchar, bits: cython.int, out: cython.p_ulonglong
) -> cython.p_const_uchar:
    """Read an unsigned varint of at most ``bits`` bits; returns the place after it, or NULL."""
    byte: cython.ulonglong
    value: cython.ulonglong
    shift: cython.int
    if p >= end:
        return cython.NULL
    byte = p[0]
    p += 1
    if byte < 128:
        out[0] = byte
        return p
    value = byte & 0x7F
    shift = 7
    while p < end and shift < bits:
        byte = p[0]
        p += 1
        if shift == 63 and byte > 1:
            return cython.NULL
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if bits == 32 and value >> 32:
                return cython.NULL
            out[0] = value
            return p
        shift += 7
    return cython.NULL


@cython.final
@cython.cclass
class _Growing:
    """Bytes that grow at the end."""

    data: bytearray
    used: cython.Py_ssize_t

    def __cinit__(self):
        self.data = bytearray()

    @cython.cfunc
    def reserve(self, extra: cython.Py_ssize_t) -> cython.p_uchar:
        """Room for ``extra`` more bytes; returns where they start."""
        needed: cython.Py_ssize_t = self.used + extra
        if needed > PyByteArray_GET_SIZE(self.data) or needed == 0:
            if self.used == 0:
                self.data = PyByteArray_FromStringAndSize(cython.NULL, needed + 1)
            else:
                PyByteArray_Resize(self.data, needed + (needed >> 1))
        return cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.data)) + self.used

    @cython.cfunc
    def finish(self) -> bytearray:
        PyByteArray_Resize(self.data, self.used)
        return self.data


@cython.final
@cython.cclass
class _Binary:
    """A nullable binary column in the making."""

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
    def reserve(self, row: cython.Py_ssize_t, rows: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.int:
        """Room for ``rows`` more values of ``size`` bytes in all, behind the first ``row``."""
        _reserve_valid(self.valid, row, rows)
        if self.views:
            self.offsets.reserve(16 * rows)
        else:
            self.offsets.reserve(4 * rows)
            self.data.reserve(size)
        return 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def add(
        self,
        row: cython.Py_ssize_t,
        start: cython.p_const_uchar,
        size: cython.longlong,
        number: cython.uint,
        position: cython.uint,
    ) -> cython.void:
        """Put the value of ``row`` (``size`` -1 is null) into the room that ``reserve`` made."""
        place: cython.p_uchar
        if size < 0:
            place = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.valid.data)) + (row >> 3)
            place[0] &= ~(1 << (row & 7))
            self.nulls += 1
            size = 0
        place = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.offsets.data)) + self.offsets.used
        if self.views:
            words: cython.p_uint = cython.cast(cython.p_uint, place)
            words[0] = cython.cast(cython.uint, size)
            if size <= 12:
                words[1] = 0
                words[2] = 0
                words[3] = 0
                memcpy(place + 4, start, size)
            else:
                memcpy(place + 4, start, 4)
                words[2] = number
                words[3] = position
            self.offsets.used += 16
        else:
            memcpy(PyByteArray_AS_STRING(self.data.data) + self.data.used, start, size)
            self.data.used += size
            cython.cast(cython.p_uint, place)[0] = cython.cast(cython.uint, self.data.used)
            self.offsets.used += 4

    @cython.cfunc
    def finish(self):
        data = None if self.views else self.data.finish()
        return BinaryBuffers(self.valid.finish(), self.nulls, self.offsets.finish(), data)


@cython.cfunc
@cython.exceptval(-1)
def _reserve_valid(valid: _Growing, row: cython.Py_ssize_t, rows: cython.Py_ssize_t) -> cython.int:
    """Room for a validity bitmap of ``row + rows`` bits; new bits are set."""
    size: cython.Py_ssize_t = (row + rows + 7) >> 3
    if size > valid.used:
        memset(valid.reserve(size - valid.used), 0xFF, size - valid.used)
        valid.used = size
    return 0


@cython.final
@cython.cclass
class ColumnAppender:
    """Records of many batches gathered into columns."""

    rows = cython.declare(cython.Py_ssize_t, visibility="readonly")
    _columns: cython.int
    _views: cython.bint
    _offset: _Growing
    _timestamp: _Growing
    _key: _Binary
    _value: _Binary
    _header_valid: _Growing
    _header_nulls: cython.longlong
    _header_offsets: _Growing
    _header_count: cython.Py_ssize_t
    _header_names: _Binary
    _header_values: _Binary

    def __cinit__(self, columns: cython.int, views: cython.bint):
        self._columns = columns
        self._views = views
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
        """Whether ``size`` more bytes fit every column: Arrow's offsets have 32 bits."""
        used: cython.Py_ssize_t = max(self._key.data.used, self._value.data.used)
        # An invalid byte of a header name becomes a replacement character of three.
        return max(used, self._header_names.data.used + 2 * size) + size <= _LARGEST

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
        """Add records ``index`` to ``count - 1`` of ``data`` from ``position`` on, at most ``limit``."""
        view = cython.declare(Py_buffer)
        PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
        try:
            if position < 0 or position > end or end > view.len:
                raise ValueError("the payload lies outside of the buffer")
            if not self.has_room(end - position):
                raise ValueError("the columns are full")
            base: cython.p_const_uchar = cython.cast(cython.p_const_uchar, view.buf)
            p: cython.p_const_uchar = base + position
            stop: cython.p_const_uchar = base + end
            failure: cython.int = self._append(
                limit,
                base - shift,
                cython.address(p),
                stop,
                cython.address(index),
                count,
                cython.address(previous_delta),
                base_offset,
                last_delta,
                base_timestamp,
                append_time,
                timestamp_type == 1,
                from_offset,
                number,
            )
            if failure:
                raise corrupt_record("", 0, base_offset, index, _REASONS[failure])
            if index == count and p != stop:
                raise corrupt_batch("", 0, base_offset, f"{stop - p} bytes follow its {count} records")
            return p - base, index, previous_delta
        finally:
            PyBuffer_Release(cython.address(view))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _append(
        self,
        wanted: cython.Py_ssize_t,
        base: cython.p_const_uchar,
        place: cython.pointer(cython.p_const_uchar),
        stop: cython.p_const_uchar,
        index_place: cython.p_longlong,
        count: cython.longlong,
        previous_place: cython.p_longlong,
        base_offset: cython.longlong,
        last_delta: cython.longlong,
        base_timestamp: cython.longlong,
        append_time: cython.longlong,
        appended: cython.bint,
        from_offset: cython.longlong,
        number: cython.uint,
    ) -> cython.int:
        """The loop. Returns 0, or what is wrong with the record at ``index_place[0]``."""
        p: cython.p_const_uchar = place[0]
        end: cython.p_const_uchar
        index: cython.longlong = index_place[0]
        previous_delta: cython.longlong = previous_place[0]
        row: cython.Py_ssize_t = self.rows
        size: cython.Py_ssize_t = stop - p
        rows: cython.Py_ssize_t = min(min(count - index, wanted), size // _SMALLEST_RECORD + 1)
        if rows <= 0:
            return 0
        columns: cython.int = self._columns
        offsets: cython.p_longlong = cython.NULL
        timestamps: cython.p_longlong = cython.NULL
        key: _Binary = self._key
        value: _Binary = self._value
        key_start: cython.p_const_uchar
        key_size: cython.longlong
        value_start: cython.p_const_uchar
        value_size: cython.longlong
        delta: cython.longlong
        timestamp: cython.ulonglong
        raw: cython.ulonglong = 0
        failure: cython.int = 0
        if columns & _OFFSET:
            offsets = cython.cast(cython.p_longlong, self._offset.reserve(8 * rows))
        if columns & _TIMESTAMP:
            timestamps = cython.cast(cython.p_longlong, self._timestamp.reserve(8 * rows))
        if columns & _KEY:
            key.reserve(row, rows, size)
        if columns & _VALUE:
            value.reserve(row, rows, size)
        if columns & _HEADERS:
            _reserve_valid(self._header_valid, row, rows)
            self._header_offsets.reserve(4 * rows)
        while index < count and wanted > 0:
            p = read_varint(p, stop, 32, cython.address(raw))
            if p == cython.NULL:
                failure = _SHORT
                break
            if raw & 1 or raw >> 1 > cython.cast(cython.ulonglong, stop - p):
                failure = _LENGTH
                break
            end = p + (raw >> 1)
            if p == end:
                failure = _SHORT
                break
            p = read_varint(p + 1, end, 64, cython.address(raw))
            if p == cython.NULL:
                failure = _SHORT
                break
            timestamp = cython.cast(cython.ulonglong, base_timestamp) + ((raw >> 1) ^ (0 - (raw & 1)))
            p = read_varint(p, end, 32, cython.address(raw))
            if p == cython.NULL:
                failure = _SHORT
                break
            delta = cython.cast(cython.longlong, raw >> 1)
            if raw & 1 or delta <= previous_delta or delta > last_delta:
                failure = _ORDER
                break
            p = read_varint(p, end, 32, cython.address(raw))
            if p == cython.NULL:
                failure = _SHORT
                break
            key_start = p
            key_size = -1
            if raw != 1:
                if raw & 1 or raw >> 1 > cython.cast(cython.ulonglong, end - p):
                    failure = _BAD_KEY
                    break
                key_size = raw >> 1
                p += key_size
            p = read_varint(p, end, 32, cython.address(raw))
            if p == cython.NULL:
                failure = _SHORT
                break
            value_start = p
            value_size = -1
            if raw != 1:
                if raw & 1 or raw >> 1 > cython.cast(cython.ulonglong, end - p):
                    failure = _BAD_VALUE
                    break
                value_size = raw >> 1
                p += value_size
            if base_offset + delta >= from_offset:
                if columns & _HEADERS:
                    failure = self._add_headers(p, end, row)
                    if failure:
                        break
                if offsets != cython.NULL:
                    offsets[0] = base_offset + delta
                    offsets += 1
                if timestamps != cython.NULL:
                    if appended:
                        timestamp = cython.cast(cython.ulonglong, append_time)
                    timestamps[0] = cython.cast(cython.longlong, timestamp * 1000)
                    timestamps += 1
                if columns & _KEY:
                    key.add(row, key_start, key_size, number, cython.cast(cython.uint, key_start - base))
                if columns & _VALUE:
                    value.add(row, value_start, value_size, number, cython.cast(cython.uint, value_start - base))
                row += 1
                wanted -= 1
            p = end
            previous_delta = delta
            index += 1
        if columns & _OFFSET:
            self._offset.used = 8 * row
        if columns & _TIMESTAMP:
            self._timestamp.used = 8 * row
        self.rows = row
        place[0] = p
        index_place[0] = index
        previous_place[0] = previous_delta
        return failure

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _add_headers(self, p: cython.p_const_uchar, end: cython.p_const_uchar, row: cython.Py_ssize_t) -> cython.int:
        """The header list of one record; nothing of it stays when it does not fit."""
        raw: cython.ulonglong = 0
        remaining: cython.ulonglong
        place: cython.p_uchar
        p = read_varint(p, end, 32, cython.address(raw))
        if p == cython.NULL:
            return _SHORT
        if raw & 1 or raw >> 2 > cython.cast(cython.ulonglong, end - p):
            return _HEADER_COUNT
        remaining = raw >> 1
        if remaining == 0:
            if p != end:
                return _SIZE
            place = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self._header_valid.data)) + (row >> 3)
            place[0] &= ~(1 << (row & 7))
            self._header_nulls += 1
        else:
            failure: cython.int = self._check_headers(p, end, remaining)
            if failure:
                return failure
            while remaining:
                p = read_varint(p, end, 32, cython.address(raw))
                self._add_name(p, raw >> 1)
                p += raw >> 1
                p = read_varint(p, end, 32, cython.address(raw))
                if raw == 1:
                    self._add_value(p, -1)
                else:
                    self._add_value(p, cython.cast(cython.longlong, raw >> 1))
                    p += raw >> 1
                self._header_count += 1
                remaining -= 1
        place = (
            cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self._header_offsets.data)) + self._header_offsets.used
        )
        cython.cast(cython.p_uint, place)[0] = cython.cast(cython.uint, self._header_count)
        self._header_offsets.used += 4
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def _check_headers(
        self, p: cython.p_const_uchar, end: cython.p_const_uchar, remaining: cython.ulonglong
    ) -> cython.int:
        raw: cython.ulonglong = 0
        while remaining:
            p = read_varint(p, end, 32, cython.address(raw))
            if p == cython.NULL or raw & 1 or raw >> 1 > cython.cast(cython.ulonglong, end - p):
                return _BAD_HEADER
            p += raw >> 1
            p = read_varint(p, end, 32, cython.address(raw))
            if p == cython.NULL:
                return _BAD_HEADER
            if raw != 1:
                if raw & 1 or raw >> 1 > cython.cast(cython.ulonglong, end - p):
                    return _BAD_HEADER
                p += raw >> 1
            remaining -= 1
        return 0 if p == end else _SIZE

    @cython.cfunc
    @cython.exceptval(-1)
    def _add_name(self, p: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.int:
        """A header's name as valid UTF-8, whatever its bytes are: Arrow's strings must be."""
        index: cython.Py_ssize_t
        for index in range(size):
            if p[index] > 127:
                name = PyUnicode_DecodeUTF8(cython.cast(cython.p_const_char, p), size, "replace")
                encoded: bytes = name.encode()
                size = PyBytes_GET_SIZE(encoded)
                self._header_names.reserve(self._header_count, 1, size)
                p = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(encoded))
                self._header_names.add(self._header_count, p, size, 0, 0)
                return 0
        self._header_names.reserve(self._header_count, 1, size)
        self._header_names.add(self._header_count, p, size, 0, 0)
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def _add_value(self, p: cython.p_const_uchar, size: cython.longlong) -> cython.int:
        self._header_values.reserve(self._header_count, 1, max(size, 0))
        self._header_values.add(self._header_count, p, size, 0, 0)
        return 0

    def finish(self):
        """The columns; the appender is not to be used any more."""
        columns: cython.int = self._columns
        rows: cython.Py_ssize_t = self.rows
        headers = None
        key = None
        value = None
        if columns & _HEADERS:
            self._header_valid.used = (rows + 7) >> 3
            headers = HeaderBuffers(
                self._header_valid.finish(),
                self._header_nulls,
                self._header_offsets.finish(),
                self._header_count,
                self._header_names.finish(),
                self._header_values.finish(),
            )
        if columns & _KEY:
            self._key.valid.used = (rows + 7) >> 3
            key = self._key.finish()
        if columns & _VALUE:
            self._value.valid.used = (rows + 7) >> 3
            value = self._value.finish()
        return ColumnBuffers(
            rows,
            self._offset.finish() if columns & _OFFSET else None,
            self._timestamp.finish() if columns & _TIMESTAMP else None,
            key,
            value,
            headers,
        )
