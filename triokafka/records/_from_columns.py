# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# mypy: ignore-errors
"""Records from columns into batches, to be compiled. Never imported as Python (``triokafka.kernels``).

The twin, ``plain_from_columns``, has the same interface with types and docstrings. All columns are as long as
``values`` at their construction; a list may change meanwhile, so it is checked again for every record.
"""

from __future__ import annotations

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cython.cimports.cpython.list import PyList_GET_ITEM, PyList_GET_SIZE
from cython.cimports.cpython.mem import PyMem_Calloc, PyMem_Free
from cython.cimports.cpython.object import PyObject
from cython.cimports.libc.string import memcpy
from cython.cimports.triokafka.records._appender import append_block, append_bytes, headers_in_record
from cython.cimports.triokafka.records._arrow_buffers import BytesColumn, Held
from cython.cimports.triokafka.records._murmur2 import murmur2 as hash_of

from triokafka.records._appender import RecordAppender


def murmur2(data):
    """Return the 32-bit hash that Kafka's clients use for keys; unsigned, with the bits of Java's ``Utils.murmur2``."""
    held: Held = Held(data)
    return hash_of(cython.cast(cython.p_const_uchar, held.data), held.size)


@cython.cfunc
@cython.exceptval(-1, check=True)
def _gather(
    column: BytesColumn | None,
    start: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    data: cython.pointer(cython.p_const_char),
    sizes: cython.p_Py_ssize_t,
) -> cython.Py_ssize_t:
    """Find the bytes of up to ``count`` records from ``start`` on; stop at a record that is not bytes, or is invalid.

    A size of -1 is null. Runs no Python code.
    """
    index: cython.Py_ssize_t = 0
    item: cython.pointer(PyObject)
    if column is None:
        for index in range(count):
            data[index] = cython.NULL
            sizes[index] = -1
        return count
    if column.items is None:
        return column.gather(start, count, data, sizes)
    while index < count and start + index < PyList_GET_SIZE(column.items):
        item = cython.cast(cython.pointer(PyObject), PyList_GET_ITEM(column.items, start + index))
        if item == cython.cast(cython.pointer(PyObject), None):
            data[index] = cython.NULL
            sizes[index] = -1
        elif PyBytes_CheckExact(cython.cast(object, item)):
            data[index] = PyBytes_AS_STRING(cython.cast(object, item))
            sizes[index] = PyBytes_GET_SIZE(cython.cast(object, item))
        else:
            break
        index += 1
    return index


@cython.final
@cython.cclass
class RecordColumns:
    """Records in columns, to be appended to batches in runs."""

    touched = cython.declare(list, visibility="readonly")
    _count = cython.declare(cython.Py_ssize_t)
    _values = cython.declare(BytesColumn)
    _keys = cython.declare(BytesColumn)
    _timestamps = cython.declare(Held)
    _headers = cython.declare(list)
    _same_headers = cython.declare(bytes)
    _key_sizes = cython.declare(Held)
    _value_sizes = cython.declare(Held)

    def __cinit__(
        self,
        values: BytesColumn,
        keys: BytesColumn | None = None,
        timestamps=None,
        headers: list | None = None,
        same_headers=(),
        key_sizes=None,
        value_sizes=None,
    ):
        for name, column in (
            ("keys", keys),
            ("timestamps", timestamps),
            ("headers", headers),
            ("key_sizes", key_sizes),
            ("value_sizes", value_sizes),
        ):
            if column is not None and len(column) < len(values):
                raise ValueError(f"{len(values)} values but {len(column)} {name}")
        self._count = len(values)
        self._values = values
        self._keys = keys
        self._timestamps = Held(timestamps, 8 * len(values) if timestamps is not None else 0)
        self._headers = headers
        self._same_headers = headers_in_record(same_headers) if same_headers else b""
        self._key_sizes = Held(key_sizes, 4 * len(values) if key_sizes is not None else 0, True)
        self._value_sizes = Held(value_sizes, 4 * len(values) if value_sizes is not None else 0, True)
        self.touched = []

    def append_to(self, appender: RecordAppender, start: cython.Py_ssize_t, timestamp: cython.longlong):
        """Append records from ``start`` on to one batch until one does not fit; return the number of appended
        records."""
        position: cython.Py_ssize_t = start
        count: cython.Py_ssize_t
        added: cython.Py_ssize_t
        index: cython.Py_ssize_t
        keys = cython.declare(cython.p_const_char[64])
        key_sizes = cython.declare(cython.Py_ssize_t[64])
        values = cython.declare(cython.p_const_char[64])
        value_sizes = cython.declare(cython.Py_ssize_t[64])
        timestamps: cython.p_const_char = cython.NULL
        if not isinstance(appender, RecordAppender):
            raise TypeError(f"{appender!r} is not a RecordAppender")
        if start < 0:
            raise ValueError(f"start is {start}, must not be negative")
        # A list may have become shorter. Elements added since are not sent, because the other columns lack them.
        while position < min(self._count, self._values.count()):
            count = 0
            if self._headers is None:
                count = min(64, min(self._count, self._values.count()) - position)
                count = _gather(self._values, position, count, values, value_sizes)
                count = _gather(self._keys, position, count, keys, key_sizes)
            if not count:
                # The record is not bytes, has headers of its own, or is invalid.
                if self._append(appender, position, timestamp) < 0:
                    break
                position += 1
                continue
            if self._timestamps.data:
                timestamps = self._timestamps.data + position * 8
            # No Python code has run since the addresses were taken, so the objects are unchanged.
            added = append_block(
                appender,
                timestamp,
                timestamps,
                count,
                keys,
                key_sizes,
                values,
                value_sizes,
                PyBytes_AS_STRING(self._same_headers),
                PyBytes_GET_SIZE(self._same_headers),
            )
            for index in range(added):
                if self._key_sizes.data:
                    cython.cast(cython.p_int, self._key_sizes.data)[position + index] = key_sizes[index]
                if self._value_sizes.data:
                    cython.cast(cython.p_int, self._value_sizes.data)[position + index] = value_sizes[index]
            position += added
            if added < count:
                break
        return max(position - start, 0)

    def append_among(
        self,
        appenders: list,
        partitions,
        start: cython.Py_ssize_t,
        timestamp: cython.longlong,
        sticky: cython.Py_ssize_t,
    ):
        """Append records from ``start`` on, each to its own batch, until one does not fit; return how many were
        appended."""
        position: cython.Py_ssize_t = start
        count: cython.Py_ssize_t = len(appenders)
        chosen: cython.Py_ssize_t
        index: cython.longlong
        held: Held = Held(partitions, 0, True)
        numbers: cython.p_longlong = cython.cast(cython.p_longlong, held.data)
        touched: list = []
        seen: cython.p_char = cython.NULL
        self.touched = touched
        if start < 0:
            raise ValueError(f"start is {start}, must not be negative")
        if held.size // 8 < self._count:
            raise ValueError(f"{self._count} values but {held.size // 8} partitions")
        for appender in appenders:
            if appender is not None and not isinstance(appender, RecordAppender):
                raise TypeError(f"{appender!r} is not a RecordAppender")
        seen = cython.cast(cython.p_char, PyMem_Calloc(max(count, 1), 1))
        if seen == cython.NULL:
            raise MemoryError
        try:
            while position < min(self._count, self._values.count()):
                chosen = self._place(position, numbers[position], count, sticky)
                if not 0 <= chosen < count:
                    raise ValueError(f"partition {chosen} of {count}")
                # The list may have become shorter: exporting a buffer may run Python code.
                if chosen >= len(appenders):
                    break
                appender = appenders[chosen]
                if appender is None:
                    break
                index = self._append(appender, position, timestamp)
                if index < 0:
                    break
                if not seen[chosen]:
                    seen[chosen] = 1
                    touched.append((chosen, index))
                numbers[position] = chosen
                position += 1
        finally:
            PyMem_Free(seen)
        return max(position - start, 0)

    def place(self, position: cython.Py_ssize_t, partitions, count: cython.Py_ssize_t, sticky: cython.Py_ssize_t):
        """Return which of ``count`` batches `append_among` would choose for a record."""
        if not 0 <= position < self._count:
            raise IndexError(f"position {position} of {self._count} records")
        return self._place(position, partitions[position], count, sticky)

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def _place(
        self,
        position: cython.Py_ssize_t,
        given: cython.longlong,
        count: cython.Py_ssize_t,
        sticky: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        data: cython.p_const_char = cython.NULL
        size: cython.Py_ssize_t = -1
        held: Held
        if given >= 0 or count < 1:
            return given
        if self._keys is None:
            return sticky
        if self._keys.items is None:
            self._keys.read(position, cython.address(data), cython.address(size))
        else:
            if position >= len(self._keys.items):
                raise IndexError(f"position {position} of a column of {len(self._keys.items)}")
            key = self._keys.items[position]
            if key is None:
                return sticky
            if PyBytes_CheckExact(key):
                data = PyBytes_AS_STRING(key)
                size = PyBytes_GET_SIZE(key)
            else:
                held = Held(key)
                return (hash_of(cython.cast(cython.p_const_uchar, held.data), held.size) & 0x7FFFFFFF) % count
        if size < 0:
            return sticky
        return (hash_of(cython.cast(cython.p_const_uchar, data), size) & 0x7FFFFFFF) % count

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def _append(self, appender, position: cython.Py_ssize_t, timestamp: cython.longlong) -> cython.longlong:
        """As `_append`, for a position that the caller has checked if ``values`` is an Arrow column."""
        key = None
        value = None
        encoded: bytes = self._same_headers
        key_data: cython.p_const_char = cython.NULL
        key_size: cython.Py_ssize_t = -1
        value_data: cython.p_const_char = cython.NULL
        value_size: cython.Py_ssize_t = -1
        objects: cython.bint = False
        held_key: Held
        held_value: Held
        index: cython.longlong
        if self._timestamps.data:
            memcpy(cython.address(timestamp), self._timestamps.data + position * 8, 8)
        if self._headers is not None:
            if position >= len(self._headers):
                raise IndexError(f"position {position} of {len(self._headers)} headers")
            own = self._headers[position]
            encoded = headers_in_record(own) if own else b""
        if self._keys is not None:
            if self._keys.items is None:
                self._keys.read(position, cython.address(key_data), cython.address(key_size))
            else:
                if position >= len(self._keys.items):
                    raise IndexError(f"position {position} of a column of {len(self._keys.items)}")
                key = self._keys.items[position]
                if key is not None:
                    if PyBytes_CheckExact(key):
                        key_data = PyBytes_AS_STRING(key)
                        key_size = PyBytes_GET_SIZE(key)
                    else:
                        objects = True
        if self._values.items is None:
            self._values.read(position, cython.address(value_data), cython.address(value_size))
        else:
            if position >= len(self._values.items):
                raise IndexError(f"position {position} of a column of {len(self._values.items)}")
            value = self._values.items[position]
            if value is not None:
                if PyBytes_CheckExact(value):
                    value_data = PyBytes_AS_STRING(value)
                    value_size = PyBytes_GET_SIZE(value)
                else:
                    objects = True
        if objects:
            # Exported while they are copied; bytes objects and Arrow buffers are kept alive anyway.
            if key is not None:
                held_key = Held(key)
                key_data = held_key.data
                key_size = held_key.size
            if value is not None:
                held_value = Held(value)
                value_data = held_value.data
                value_size = held_value.size
        index = append_bytes(
            appender,
            timestamp,
            key_data,
            key_size,
            value_data,
            value_size,
            PyBytes_AS_STRING(encoded),
            PyBytes_GET_SIZE(encoded),
        )
        if index >= 0:
            if self._key_sizes.data:
                cython.cast(cython.p_int, self._key_sizes.data)[position] = key_size
            if self._value_sizes.data:
                cython.cast(cython.p_int, self._value_sizes.data)[position] = value_size
        return index
