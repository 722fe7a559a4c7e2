# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# mypy: ignore-errors
"""Encoding records into a batch buffer, to be compiled. Never imported as Python (``triokafka.kernels``).

The twin, ``plain_appender``, has the same interface with types and docstrings. Other code may hold the ``bytearray``
that is the buffer. So its address and size are read again for every record, and a record is measured before it is
written.
"""

from __future__ import annotations

import cython
from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytearray import (
    PyByteArray_AS_STRING,
    PyByteArray_FromStringAndSize,
    PyByteArray_GET_SIZE,
)
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_CheckExact,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.cpython.unicode import PyUnicode_AsUTF8AndSize
from cython.cimports.libc.string import memcpy

from triokafka.errors import MessageSizeTooLargeError
from triokafka.records.batch import HEADER_SIZE, MAX_BATCH_SIZE
from triokafka.records.plain_appender import encode_headers

_LARGEST = cython.declare(cython.Py_ssize_t, MAX_BATCH_SIZE)
_START = cython.declare(cython.Py_ssize_t, HEADER_SIZE)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _varint_size(value: cython.ulonglong) -> cython.Py_ssize_t:
    size: cython.Py_ssize_t = 1
    while value > 127:
        value >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _write_varint(p: cython.p_uchar, value: cython.ulonglong) -> cython.p_uchar:
    while value > 127:
        p[0] = cython.cast(cython.uchar, value | 0x80)
        value >>= 7
        p += 1
    p[0] = cython.cast(cython.uchar, value)
    return p + 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _write_bytes(p: cython.p_uchar, data: cython.p_const_char, size: cython.Py_ssize_t) -> cython.p_uchar:
    """A nullable byte string: ``size`` -1 is null."""
    if size < 0:
        p[0] = 1
        return p + 1
    p = _write_varint(p, cython.cast(cython.ulonglong, size) << 1)
    memcpy(p, data, size)
    return p + size


@cython.cclass
class RecordAppender:
    """Encodes records one after the other into one buffer, behind the space for the batch header."""

    buffer = cython.declare(bytearray, visibility="readonly")
    limit = cython.declare(cython.Py_ssize_t, visibility="readonly")
    size = cython.declare(cython.Py_ssize_t, visibility="readonly")
    count = cython.declare(cython.longlong, visibility="readonly")
    base_timestamp = cython.declare(cython.longlong, visibility="readonly")
    max_timestamp = cython.declare(cython.longlong, visibility="readonly")
    closed = cython.declare(cython.bint, visibility="readonly")

    def __cinit__(self):
        self.buffer = bytearray()
        self.size = _START
        self.base_timestamp = -1
        self.max_timestamp = -1

    def __init__(self, limit: cython.Py_ssize_t, capacity: cython.Py_ssize_t = 0, buffer: bytearray | None = None):
        self.limit = limit
        if buffer is None:
            buffer = PyByteArray_FromStringAndSize(cython.NULL, max(capacity, _START))
        self.buffer = buffer

    def close(self):
        """Refuse all further records."""
        self.closed = True

    def append(self, timestamp: cython.longlong, key=None, value=None, headers=()):
        """Add one record; returns its number in the batch, or -1 when it does not fit or the batch is closed."""
        return self._append(timestamp, key, value, headers)

    def append_records(self, records):
        """Add ``records``, each (timestamp, key, value, headers), until one does not fit; returns how many."""
        index: cython.Py_ssize_t = 0
        items: list = records if type(records) is list else list(records)
        while index < len(items):
            timestamp, key, value, headers = items[index]
            if self._append(timestamp, key, value, headers) < 0:
                break
            index += 1
        return index

    @cython.final
    @cython.cfunc
    @cython.exceptval(-2)
    def _append(self, timestamp: cython.longlong, key, value, headers) -> cython.longlong:
        encoded: bytes | None = None
        header_data: cython.p_const_char = cython.NULL
        header_size: cython.Py_ssize_t = 0
        if headers:
            encoded = headers_in_record(headers)
            header_data = PyBytes_AS_STRING(encoded)
            header_size = PyBytes_GET_SIZE(encoded)
        return self._append_objects(timestamp, key, value, header_data, header_size)

    @cython.final
    @cython.cfunc
    @cython.exceptval(-2)
    def _append_objects(
        self,
        timestamp: cython.longlong,
        key,
        value,
        header_data: cython.p_const_char,
        header_size: cython.Py_ssize_t,
    ) -> cython.longlong:
        key_data: cython.p_const_char = cython.NULL
        key_size: cython.Py_ssize_t = -1
        value_data: cython.p_const_char = cython.NULL
        value_size: cython.Py_ssize_t = -1
        if key is not None:
            if not PyBytes_CheckExact(key):
                return self._append_buffers(timestamp, key, value, header_data, header_size)
            key_data = PyBytes_AS_STRING(key)
            key_size = PyBytes_GET_SIZE(key)
        if value is not None:
            if not PyBytes_CheckExact(value):
                return self._append_buffers(timestamp, key, value, header_data, header_size)
            value_data = PyBytes_AS_STRING(value)
            value_size = PyBytes_GET_SIZE(value)
        return self._write(timestamp, key_data, key_size, value_data, value_size, header_data, header_size)

    @cython.final
    @cython.cfunc
    @cython.exceptval(-2)
    def _append_buffers(
        self,
        timestamp: cython.longlong,
        key,
        value,
        header_data: cython.p_const_char,
        header_size: cython.Py_ssize_t,
    ) -> cython.longlong:
        """Keys and values that are not ``bytes``: their buffers are held while they are copied."""
        key_view = cython.declare(Py_buffer)
        value_view = cython.declare(Py_buffer)
        key_data: cython.p_const_char = cython.NULL
        key_size: cython.Py_ssize_t = -1
        value_data: cython.p_const_char = cython.NULL
        value_size: cython.Py_ssize_t = -1
        if key is not None:
            PyObject_GetBuffer(key, cython.address(key_view), PyBUF_SIMPLE)
            key_data = cython.cast(cython.p_const_char, key_view.buf)
            key_size = key_view.len
        try:
            if value is not None:
                PyObject_GetBuffer(value, cython.address(value_view), PyBUF_SIMPLE)
                value_data = cython.cast(cython.p_const_char, value_view.buf)
                value_size = value_view.len
            try:
                return self._write(timestamp, key_data, key_size, value_data, value_size, header_data, header_size)
            finally:
                if value is not None:
                    PyBuffer_Release(cython.address(value_view))
        finally:
            if key is not None:
                PyBuffer_Release(cython.address(key_view))

    @cython.final
    @cython.cfunc
    @cython.exceptval(-2)
    def _write(
        self,
        timestamp: cython.longlong,
        key_data: cython.p_const_char,
        key_size: cython.Py_ssize_t,
        value_data: cython.p_const_char,
        value_size: cython.Py_ssize_t,
        header_data: cython.p_const_char,
        header_size: cython.Py_ssize_t,
    ) -> cython.longlong:
        index: cython.longlong = self.count
        base: cython.longlong = timestamp if index == 0 else self.base_timestamp
        difference: cython.longlong = cython.cast(
            cython.longlong, cython.cast(cython.ulonglong, timestamp) - cython.cast(cython.ulonglong, base)
        )
        delta: cython.ulonglong = (cython.cast(cython.ulonglong, difference) << 1) ^ cython.cast(
            cython.ulonglong, difference >> 63
        )
        number: cython.ulonglong = cython.cast(cython.ulonglong, index) << 1
        if self.closed:
            return -1
        length: cython.Py_ssize_t = 3 + _varint_size(delta) + _varint_size(number)
        if key_size >= 0:
            length += _varint_size(cython.cast(cython.ulonglong, key_size) << 1) - 1 + key_size
        if value_size >= 0:
            length += _varint_size(cython.cast(cython.ulonglong, value_size) << 1) + value_size
        else:
            length += 1
        if header_size:
            length += header_size - 1
        end: cython.Py_ssize_t = self.size + _varint_size(cython.cast(cython.ulonglong, length) << 1) + length
        if end > self.limit and index:
            return -1
        if end > PyByteArray_GET_SIZE(self.buffer):
            self._grow(end)
        p: cython.p_uchar = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.buffer)) + self.size
        p = _write_varint(p, cython.cast(cython.ulonglong, length) << 1)
        p[0] = 0
        p = _write_varint(p + 1, delta)
        p = _write_varint(p, number)
        p = _write_bytes(p, key_data, key_size)
        p = _write_bytes(p, value_data, value_size)
        if header_size:
            memcpy(p, header_data, header_size)
        else:
            p[0] = 0
        if index == 0:
            self.base_timestamp = timestamp
            self.max_timestamp = timestamp
        elif timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.size = end
        self.count = index + 1
        return index

    @cython.final
    @cython.cfunc
    @cython.exceptval(check=False)
    def _write_values(
        self,
        timestamp: cython.longlong,
        count: cython.Py_ssize_t,
        key_sizes: cython.p_Py_ssize_t,
        values: cython.pointer(cython.p_const_char),
        value_sizes: cython.p_Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Write as many of ``count`` records as are not the first and have only a value; `_write` writes all others.

        Most records have this form. Their common parts are checked once for all.
        """
        difference: cython.longlong = cython.cast(
            cython.longlong,
            cython.cast(cython.ulonglong, timestamp) - cython.cast(cython.ulonglong, self.base_timestamp),
        )
        delta: cython.ulonglong = (cython.cast(cython.ulonglong, difference) << 1) ^ cython.cast(
            cython.ulonglong, difference >> 63
        )
        number: cython.ulonglong = cython.cast(cython.ulonglong, self.count) << 1
        start: cython.p_uchar = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.buffer)) + self.size
        stop: cython.p_uchar = start + (min(self.limit, PyByteArray_GET_SIZE(self.buffer)) - self.size)
        p: cython.p_uchar = start
        index: cython.Py_ssize_t = 0
        size: cython.Py_ssize_t
        last_size: cython.Py_ssize_t = -1
        number_size: cython.Py_ssize_t = 0
        full: cython.Py_ssize_t = 0
        before = cython.declare(cython.uchar[24])
        behind = cython.declare(cython.uchar[24])
        before_size: cython.Py_ssize_t = 0
        behind_size: cython.Py_ssize_t = 0
        if self.closed or not self.count:
            return 0
        while index < count and key_sizes[index] < 0:
            size = value_sizes[index]
            if size != last_size or _varint_size(number) != number_size:
                if size < 0:
                    break
                last_size = size
                number_size = _varint_size(number)
                behind[0] = 1
                behind_size = _write_varint(
                    cython.address(behind[1]), cython.cast(cython.ulonglong, size) << 1
                ) - cython.address(behind[0])
                # The fields that the record's length counts: attributes, time, number, no key, value, no headers.
                full = 1 + _varint_size(delta) + number_size + behind_size + size + 1
                end: cython.p_uchar = _write_varint(cython.address(before[0]), cython.cast(cython.ulonglong, full) << 1)
                full += end - cython.address(before[0])
                end[0] = 0
                before_size = _write_varint(end + 1, delta) - cython.address(before[0])
            # Copies of a constant size, larger than the data, need no call; the next bytes overwrite the excess.
            if full + 24 > stop - p:
                break
            memcpy(p, before, 24)
            p = _write_varint(p + before_size, number)
            memcpy(p, behind, 24)
            p += behind_size
            memcpy(p, values[index], size)
            p[size] = 0
            p += size + 1
            number += 2
            index += 1
        self.size += p - start
        self.count += index
        if index and timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        return index

    @cython.final
    @cython.cfunc
    @cython.exceptval(-1)
    def _grow(self, needed: cython.Py_ssize_t) -> cython.int:
        if needed > _LARGEST:
            raise MessageSizeTooLargeError(f"a batch cannot have more than {_LARGEST} bytes, needs {needed}")
        held: cython.Py_ssize_t = PyByteArray_GET_SIZE(self.buffer)
        grown: bytearray = PyByteArray_FromStringAndSize(cython.NULL, max(needed, min(2 * held, _LARGEST)))
        memcpy(PyByteArray_AS_STRING(grown), PyByteArray_AS_STRING(self.buffer), min(self.size, held))
        self.buffer = grown
        return 0


@cython.cfunc
@cython.exceptval(-2, check=True)
def append_record(appender, timestamp: cython.longlong, key, value) -> cython.longlong:
    """``RecordAppender.append`` for other kernels (``_appender.pxd``)."""
    return cython.cast(RecordAppender, appender)._append_objects(timestamp, key, value, cython.NULL, 0)


@cython.cfunc
@cython.exceptval(-2, check=True)
def append_bytes(
    appender,
    timestamp: cython.longlong,
    key_data: cython.p_const_char,
    key_size: cython.Py_ssize_t,
    value_data: cython.p_const_char,
    value_size: cython.Py_ssize_t,
    header_data: cython.p_const_char,
    header_size: cython.Py_ssize_t,
) -> cython.longlong:
    return cython.cast(RecordAppender, appender)._write(
        timestamp, key_data, key_size, value_data, value_size, header_data, header_size
    )


@cython.cfunc
@cython.exceptval(-1, check=True)
def append_block(
    appender,
    timestamp: cython.longlong,
    timestamps: cython.p_const_char,
    count: cython.Py_ssize_t,
    keys: cython.pointer(cython.p_const_char),
    key_sizes: cython.p_Py_ssize_t,
    values: cython.pointer(cython.p_const_char),
    value_sizes: cython.p_Py_ssize_t,
    header_data: cython.p_const_char,
    header_size: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    to: RecordAppender = cython.cast(RecordAppender, appender)
    index: cython.Py_ssize_t = 0
    plain: cython.bint = timestamps == cython.NULL and not header_size
    while index < count:
        if plain and key_sizes[index] < 0:
            index += to._write_values(timestamp, count - index, key_sizes + index, values + index, value_sizes + index)
            if index == count:
                break
        if timestamps:
            memcpy(cython.address(timestamp), timestamps + index * 8, 8)
        if (
            to._write(
                timestamp, keys[index], key_sizes[index], values[index], value_sizes[index], header_data, header_size
            )
            < 0
        ):
            return index
        index += 1
    return count


@cython.cfunc
def headers_in_record(headers) -> bytes:
    """As `encode_headers`, without a Python call for headers of plain ``str`` and ``bytes`` (or None)."""
    size: cython.Py_ssize_t = 0
    name_size: cython.Py_ssize_t = 0
    name_data: cython.p_const_char = cython.NULL
    index: cython.Py_ssize_t
    pair: tuple
    rows: list
    if type(headers) is list:
        rows = headers
    elif type(headers) is tuple:
        rows = list(headers)
    else:
        return encode_headers(headers)
    for index in range(len(rows)):
        if type(rows[index]) is not tuple:
            return encode_headers(headers)
        pair = rows[index]
        if len(pair) != 2 or type(pair[0]) is not str or not (pair[1] is None or PyBytes_CheckExact(pair[1])):
            return encode_headers(headers)
        PyUnicode_AsUTF8AndSize(pair[0], cython.address(name_size))
        size += _varint_size(cython.cast(cython.ulonglong, name_size) << 1) + name_size
        if pair[1] is None:
            size += 1
        else:
            size += _varint_size(cython.cast(cython.ulonglong, PyBytes_GET_SIZE(pair[1])) << 1)
            size += PyBytes_GET_SIZE(pair[1])
    size += _varint_size(cython.cast(cython.ulonglong, len(rows)) << 1)
    encoded: bytes = PyBytes_FromStringAndSize(cython.NULL, size)
    p: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(encoded))
    p = _write_varint(p, cython.cast(cython.ulonglong, len(rows)) << 1)
    # No Python code has run since the sizes were read, so nothing has changed.
    for index in range(len(rows)):
        pair = rows[index]
        name_data = PyUnicode_AsUTF8AndSize(pair[0], cython.address(name_size))
        p = _write_bytes(p, name_data, name_size)
        if pair[1] is None:
            p = _write_bytes(p, cython.NULL, -1)
        else:
            p = _write_bytes(p, PyBytes_AS_STRING(pair[1]), PyBytes_GET_SIZE(pair[1]))
    return encoded
