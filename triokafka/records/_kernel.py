# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# mypy: ignore-errors
"""The record kernel, to be compiled: from one batch's payload to records. Never imported as Python (``kernels``).

The twin, ``plain_kernel``, has the same interface with types and docstrings. Nothing here relies on bounds that Cython
would check: every read is preceded by a comparison with the end of the record or of the payload.
"""

from __future__ import annotations

import cython
from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_CheckExact,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.cpython.unicode import PyUnicode_DecodeUTF8
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
from triokafka.records.corruption import FAULTS, corrupt_batch, corrupt_record

_FIELDS = (
    "topic",
    "partition",
    "leader_epoch",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
    "checksum",
    "serialized_key_size",
    "serialized_value_size",
    "serialized_header_size",
)
_DERIVED = ("checksum", "serialized_header_size")


@cython.final
@cython.cclass
class RecordOrigin:
    """The fields that all records of a batch share; each record points to it."""

    topic = cython.declare(object, visibility="readonly")
    partition = cython.declare(cython.int, visibility="readonly")
    leader_epoch = cython.declare(cython.int, visibility="readonly")
    timestamp_type = cython.declare(cython.int, visibility="readonly")

    def __init__(self, topic, partition, leader_epoch=-1, timestamp_type=0):
        self.topic = topic
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.timestamp_type = timestamp_type


@cython.final
@cython.no_gc
@cython.freelist(8192)
@cython.cclass
class ConsumerRecord:
    """One consumed record.

    Attribute names and the order of unpacking and indexing are kafka-python's. ``_fields``, ``_asdict`` and
    ``_replace`` work as in a named tuple. ``timestamp`` is milliseconds since the epoch, -1 if the format has none;
    ``timestamp_type`` is 0 for the producer's time, 1 for the broker's, -1 for none. ``headers`` is a
    tuple of (name, bytes or None). ``leader_epoch`` is -1 when unknown.

    Immutable, compared by value. The garbage collector does not track records: a record whose key or value (set by a
    deserializer) refers to the record itself would never be freed.
    """

    _fields = _FIELDS
    offset = cython.declare(cython.longlong, visibility="readonly")
    timestamp = cython.declare(cython.longlong, visibility="readonly")
    key = cython.declare(object, visibility="readonly")
    value = cython.declare(object, visibility="readonly")
    _headers = cython.declare(object)
    _origin: RecordOrigin
    _key_size: cython.int
    _value_size: cython.int

    def __init__(
        self,
        topic,
        partition,
        offset,
        timestamp=-1,
        key=None,
        value=None,
        headers=(),
        timestamp_type=0,
        leader_epoch=-1,
        serialized_key_size=None,
        serialized_value_size=None,
    ):
        """Take all fields by name or in this order; sizes default to those of key and value."""
        self._origin = RecordOrigin(topic, partition, leader_epoch, timestamp_type)
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self._headers = tuple(headers)
        self._key_size = _size_of(key) if serialized_key_size is None else serialized_key_size
        self._value_size = _size_of(value) if serialized_value_size is None else serialized_value_size

    @property
    @cython.nonecheck(True)
    def topic(self):
        """Topic of the record."""
        return self._origin.topic

    @property
    @cython.nonecheck(True)
    def partition(self):
        """Partition of the record."""
        return self._origin.partition

    @property
    @cython.nonecheck(True)
    def leader_epoch(self):
        """Epoch of the leader that appended the record, -1 when unknown."""
        return self._origin.leader_epoch

    @property
    @cython.nonecheck(True)
    def timestamp_type(self):
        """0 create time, 1 log append time, -1 none."""
        return self._origin.timestamp_type

    @property
    def headers(self):
        """The headers, as a tuple of (name, bytes or None)."""
        # Encoded until their first use: a batch of few bytes may hold millions, which most consumers never read.
        if PyBytes_CheckExact(self._headers):
            self._headers = _read_headers(self._headers)
        return self._headers

    @property
    def checksum(self):
        """Always None: records have no checksum of their own since format version 2."""
        return None

    @property
    def serialized_key_size(self):
        """Size of the serialized key in bytes, -1 for a null key."""
        return self._key_size

    @property
    def serialized_value_size(self):
        """Size of the serialized value in bytes, -1 for a null value."""
        return self._value_size

    @property
    def serialized_header_size(self):
        """Size of all header names and values in bytes, -1 without headers."""
        headers = self.headers
        if not headers:
            return -1
        return sum([len(name.encode()) + (0 if value is None else len(value)) for name, value in headers])

    def deserialized(self, key, value):
        """Return the same record with another key and value; the serialized sizes stay."""
        record: ConsumerRecord = ConsumerRecord.__new__(ConsumerRecord)
        record._origin = self._origin
        record.offset = self.offset
        record.timestamp = self.timestamp
        record.key = key
        record.value = value
        record._headers = self._headers
        record._key_size = self._key_size
        record._value_size = self._value_size
        return record

    def _asdict(self):
        """Return the fields by name, as a named tuple does."""
        return dict(zip(_FIELDS, self._values(), strict=True))

    def _replace(self, **changes):
        """Return the same record with other fields, as a named tuple does."""
        fields = {name: getattr(self, name) for name in _FIELDS if name not in _DERIVED}
        unknown = sorted(changes.keys() - fields.keys())
        if unknown:
            raise ValueError(f"a record has no fields {unknown} of its own")
        return ConsumerRecord(**(fields | changes))

    def _values(self):
        return tuple([getattr(self, name) for name in _FIELDS])

    def __iter__(self):
        return iter(self._values())

    def __len__(self):
        return len(_FIELDS)

    def __getitem__(self, index):
        return self._values()[index]

    def __eq__(self, other):
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self):
        return hash((self.topic, self.partition, self.offset, self.timestamp))

    def __repr__(self):
        return f"ConsumerRecord({', '.join([f'{name}={getattr(self, name)!r}' for name in _FIELDS])})"

    def __reduce__(self):
        return (
            ConsumerRecord,
            (
                self.topic,
                self.partition,
                self.offset,
                self.timestamp,
                self.key,
                self.value,
                self.headers,
                self.timestamp_type,
                self.leader_epoch,
                self._key_size,
                self._value_size,
            ),
        )


def _size_of(data):
    return len(data) if isinstance(data, (bytes, bytearray, memoryview)) else -1


@cython.cfunc
def _read_headers(encoded: bytes) -> tuple:
    """Return the headers of a record that ``check_headers`` has accepted."""
    headers: list = []
    p: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(encoded))
    end: cython.p_const_uchar = p + PyBytes_GET_SIZE(encoded)
    count: cython.ulonglong = 0
    raw: cython.ulonglong = 0
    size: cython.Py_ssize_t
    p = read_varint(p, end, 32, cython.address(count))
    count >>= 1
    while count:
        p = read_varint(p, end, 32, cython.address(raw))
        size = raw >> 1
        name = PyUnicode_DecodeUTF8(cython.cast(cython.p_const_char, p), size, "replace")
        p = read_varint(p + size, end, 32, cython.address(raw))
        value = None
        if raw != 1:
            size = raw >> 1
            value = PyBytes_FromStringAndSize(cython.cast(cython.p_const_char, p), size)
            p += size
        headers.append((name, value))
        count -= 1
    return tuple(headers)


def decode_batches(
    out: list,
    limit: cython.Py_ssize_t,
    data,
    position: cython.Py_ssize_t,
    next_offset: cython.longlong,
    check_crc: cython.bint,
    topic,
    partition: cython.int,
):
    """Decode whole batches while they are ordinary; return where it stopped."""
    view = cython.declare(Py_buffer)
    PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
    origin: RecordOrigin | None = None
    before: cython.Py_ssize_t
    leader_epoch: cython.int = -1
    timestamp_type: cython.int = -1
    try:
        start: cython.p_const_uchar = cython.cast(cython.p_const_uchar, view.buf)
        while 0 <= position < view.len:
            batch: cython.p_const_uchar = start + position
            size: cython.Py_ssize_t = ordinary_batch(batch, view.len - position, limit - len(out), next_offset)
            if size == 0:
                break
            if check_crc:
                checksum: cython.uint = crc32c(data[position + 21 : position + size])
                if checksum != cython.cast(cython.uint, int32(batch + 17)):
                    break
            if origin is None or leader_epoch != int32(batch + 12) or timestamp_type != (batch[22] >> 3) & 1:
                leader_epoch = int32(batch + 12)
                timestamp_type = (batch[22] >> 3) & 1
                origin = RecordOrigin.__new__(RecordOrigin)
                origin.topic = topic
                origin.partition = partition
                origin.leader_epoch = leader_epoch
                origin.timestamp_type = timestamp_type
            before = len(out)
            p: cython.p_const_uchar = batch + 61
            index: cython.longlong = 0
            previous_delta: cython.longlong = -1
            if (
                _decode(
                    out,
                    limit - before,
                    cython.address(p),
                    batch + size,
                    cython.address(index),
                    int32(batch + 57),
                    cython.address(previous_delta),
                    int64(batch),
                    int32(batch + 23),
                    int64(batch + 27),
                    int64(batch + 35),
                    origin,
                    next_offset,
                )
                or p != batch + size
            ):
                del out[before:]  # the caller reads the batch again and reports the fault
                break
            next_offset = int64(batch) + int32(batch + 23) + 1
            position += size
        return position, next_offset, leader_epoch, timestamp_type
    finally:
        PyBuffer_Release(cython.address(view))


def open_payload(data, position, end):
    """Return the form of ``data[position:end]`` that is fastest for ``decode_payload``: (data, position, end)."""
    return data, position, end


def decode_payload(
    out: list,
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
    origin: RecordOrigin,
    from_offset: cython.longlong,
):
    """Decode records ``index`` to ``count - 1`` from ``position`` on, until ``out`` holds ``limit`` records."""
    view = cython.declare(Py_buffer)
    PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
    try:
        if position < 0 or position > end or end > view.len:
            raise ValueError("the payload lies outside of the buffer")
        base: cython.p_const_uchar = cython.cast(cython.p_const_uchar, view.buf)
        p: cython.p_const_uchar = base + position
        stop: cython.p_const_uchar = base + end
        wanted: cython.Py_ssize_t = limit - len(out)
        failure: cython.int = _decode(
            out,
            wanted,
            cython.address(p),
            stop,
            cython.address(index),
            count,
            cython.address(previous_delta),
            base_offset,
            last_delta,
            base_timestamp,
            append_time,
            origin,
            from_offset,
        )
        if failure:
            raise corrupt_record(origin.topic, origin.partition, base_offset, index, FAULTS[failure])
        if index == count and p != stop:
            reason = f"{stop - p} bytes follow its {count} records"
            raise corrupt_batch(origin.topic, origin.partition, base_offset, reason)
        return p - base, index, previous_delta
    finally:
        PyBuffer_Release(cython.address(view))


@cython.cfunc
@cython.exceptval(-1, check=False)
def _decode(
    out: list,
    wanted: cython.Py_ssize_t,
    place: cython.pointer(cython.p_const_uchar),
    stop: cython.p_const_uchar,
    index_place: cython.p_longlong,
    count: cython.longlong,
    previous_place: cython.p_longlong,
    base_offset: cython.longlong,
    last_delta: cython.longlong,
    base_timestamp: cython.longlong,
    append_time: cython.longlong,
    origin: RecordOrigin,
    from_offset: cython.longlong,
) -> cython.int:
    """Run the loop. Return 0, or the fault of the record at ``index_place[0]``."""
    p: cython.p_const_uchar = place[0]
    index: cython.longlong = index_place[0]
    previous_delta: cython.longlong = previous_place[0]
    timestamp: cython.longlong
    appended: cython.bint = origin.timestamp_type == 1
    failure: cython.int = 0
    found = cython.declare(Record)
    closer = cython.declare(Record)
    headers: object
    start: cython.p_const_char
    record: ConsumerRecord
    while index < count and wanted > 0:
        if stop - p >= 16 and read_short_record(p, stop, cython.address(found)):
            pass
        else:
            failure = read_long_record(p, stop, cython.address(closer))
            if failure:
                break
            found = closer
        if found.delta <= previous_delta or found.delta > last_delta:
            failure = ORDER
            break
        headers = ()
        if found.end - found.headers != 1 or found.headers[0] != 0:
            failure = check_headers(found.headers, found.end)
            if failure:
                break
            headers = PyBytes_FromStringAndSize(
                cython.cast(cython.p_const_char, found.headers), found.end - found.headers
            )
        if base_offset + found.delta >= from_offset:
            timestamp = append_time
            if not appended:
                timestamp = cython.cast(
                    cython.longlong,
                    cython.cast(cython.ulonglong, base_timestamp) + cython.cast(cython.ulonglong, found.elapsed),
                )
            record = ConsumerRecord.__new__(ConsumerRecord)
            record.offset = base_offset + found.delta
            record.timestamp = timestamp
            record._key_size = cython.cast(cython.int, found.key_size)
            record._value_size = cython.cast(cython.int, found.value_size)
            record._origin = origin
            record._headers = headers
            if found.key_size >= 0:
                start = cython.cast(cython.p_const_char, found.key)
                record.key = PyBytes_FromStringAndSize(start, found.key_size)
            if found.value_size >= 0:
                record.value = PyBytes_FromStringAndSize(
                    cython.cast(cython.p_const_char, found.value), found.value_size
                )
            out.append(record)
            wanted -= 1
        p = found.end
        previous_delta = found.delta
        index += 1
    place[0] = p
    index_place[0] = index
    previous_place[0] = previous_delta
    return failure
