# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# mypy: ignore-errors
"""The record kernel, to be compiled: from one batch's payload to records. Never imported as Python (``kernels``).

The twin, ``plain_kernel``, has the same interface with types and docstrings. Nothing here relies on bounds that Cython
would check: every read is preceded by a comparison with the end of the record or of the payload.
"""

from __future__ import annotations

import cython
from crc32c import crc32c
from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.cpython.unicode import PyUnicode_DecodeUTF8

from triokafka.records.corruption import corrupt_batch, corrupt_record

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


# What the loop can find wrong with a record; 0 is nothing.
_SHORT = cython.declare(cython.int, 1)
_LENGTH = cython.declare(cython.int, 2)
_OFFSET = cython.declare(cython.int, 3)
_KEY = cython.declare(cython.int, 4)
_VALUE = cython.declare(cython.int, 5)
_HEADER_COUNT = cython.declare(cython.int, 6)
_HEADER = cython.declare(cython.int, 7)
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


@cython.final
@cython.cclass
class RecordOrigin:
    """What all records of a batch have in common; each record points to it."""

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
@cython.freelist(1024)
@cython.cclass
class ConsumerRecord:
    """One record as it was read.

    Attribute names are kafka-python's, and so is the order in which a record unpacks and indexes. ``timestamp`` is
    milliseconds since the epoch, -1 when the format has none; ``timestamp_type`` is 0 for the producer's time, 1 for
    the broker's, -1 for none. ``headers`` is a tuple of (name, bytes or None). ``leader_epoch`` is -1 when unknown.

    Immutable, compared by value. Records are not tracked by the garbage collector, so one whose key or value (put there
    by a deserializer) points back to the record itself would never be freed.
    """

    offset = cython.declare(cython.longlong, visibility="readonly")
    timestamp = cython.declare(cython.longlong, visibility="readonly")
    key = cython.declare(object, visibility="readonly")
    value = cython.declare(object, visibility="readonly")
    headers = cython.declare(tuple, visibility="readonly")
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
        """All fields by name or in this order; sizes are taken from key and value unless given."""
        self._origin = RecordOrigin(topic, partition, leader_epoch, timestamp_type)
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = tuple(headers)
        self._key_size = _size_of(key) if serialized_key_size is None else serialized_key_size
        self._value_size = _size_of(value) if serialized_value_size is None else serialized_value_size

    @property
    @cython.nonecheck(True)
    def topic(self):
        """The topic that the record was read from."""
        return self._origin.topic

    @property
    @cython.nonecheck(True)
    def partition(self):
        """The partition that the record was read from."""
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
    def checksum(self):
        """Always None: records have had no checksum of their own since format version 2."""
        return None

    @property
    def serialized_key_size(self):
        """Bytes of the key as it was read, -1 for a null key."""
        return self._key_size

    @property
    def serialized_value_size(self):
        """Bytes of the value as it was read, -1 for a null value."""
        return self._value_size

    @property
    def serialized_header_size(self):
        """Bytes of all header names and values, -1 without headers."""
        if not self.headers:
            return -1
        return sum([len(name.encode()) + (0 if value is None else len(value)) for name, value in self.headers])

    def deserialized(self, key, value):
        """The same record with another key and value; the serialized sizes stay."""
        record: ConsumerRecord = ConsumerRecord.__new__(ConsumerRecord)
        record._origin = self._origin
        record.offset = self.offset
        record.timestamp = self.timestamp
        record.key = key
        record.value = value
        record.headers = self.headers
        record._key_size = self._key_size
        record._value_size = self._value_size
        return record

    def _fields(self):
        return tuple([getattr(self, name) for name in _FIELDS])

    def __iter__(self):
        return iter(self._fields())

    def __len__(self):
        return len(_FIELDS)

    def __getitem__(self, index):
        return self._fields()[index]

    def __eq__(self, other):
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        return self._fields() == other._fields()

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
@cython.nogil
@cython.exceptval(check=False)
def _read_long_varint(
    p: cython.p_const_uchar, end: cython.p_const_uchar, bits: cython.int, out: cython.p_ulonglong
) -> cython.p_const_uchar:
    """Read an unsigned varint of at most ``bits`` bits; returns the place after it, or NULL."""
    byte: cython.ulonglong
    value: cython.ulonglong = 0
    shift: cython.int = 0
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


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def read_varint(
    p: cython.p_const_uchar, end: cython.p_const_uchar, bits: cython.int, out: cython.p_ulonglong
) -> cython.p_const_uchar:
    """The same; one and two bytes, which is nearly all there are, without a call."""
    if end - p >= 2:
        if p[0] < 128:
            out[0] = p[0]
            return p + 1
        if p[1] < 128:
            out[0] = (p[0] & 0x7F) | (cython.cast(cython.uint, p[1]) << 7)
            return p + 2
    return _read_long_varint(p, end, bits, out)


@cython.cfunc
def _read_headers(
    place: cython.pointer(cython.p_const_uchar), end: cython.p_const_uchar, count: cython.ulonglong
) -> tuple:
    """``count`` headers from ``place[0]`` on, which is moved behind them; None when they do not fit."""
    headers: list = []
    p: cython.p_const_uchar = place[0]
    raw: cython.ulonglong = 0
    while count:
        p = read_varint(p, end, 32, cython.address(raw))
        if p == cython.NULL or raw & 1 or raw >> 1 > cython.cast(cython.ulonglong, end - p):
            return None
        name = PyUnicode_DecodeUTF8(
            cython.cast(cython.p_const_char, p), cython.cast(cython.Py_ssize_t, raw >> 1), "replace"
        )
        p += raw >> 1
        p = read_varint(p, end, 32, cython.address(raw))
        if p == cython.NULL:
            return None
        if raw == 1:
            headers.append((name, None))
        else:
            if raw & 1 or raw >> 1 > cython.cast(cython.ulonglong, end - p):
                return None
            value = PyBytes_FromStringAndSize(
                cython.cast(cython.p_const_char, p), cython.cast(cython.Py_ssize_t, raw >> 1)
            )
            p += raw >> 1
            headers.append((name, value))
        count -= 1
    place[0] = p
    return tuple(headers)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _int32(p: cython.p_const_uchar) -> cython.int:
    return cython.cast(
        cython.int,
        (cython.cast(cython.uint, p[0]) << 24)
        | (cython.cast(cython.uint, p[1]) << 16)
        | (cython.cast(cython.uint, p[2]) << 8)
        | p[3],
    )


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _int64(p: cython.p_const_uchar) -> cython.longlong:
    return cython.cast(
        cython.longlong,
        (cython.cast(cython.ulonglong, cython.cast(cython.uint, _int32(p))) << 32)
        | cython.cast(cython.uint, _int32(p + 4)),
    )


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _ordinary_batch(
    p: cython.p_const_uchar, available: cython.Py_ssize_t, limit: cython.longlong, from_offset: cython.longlong
) -> cython.Py_ssize_t:
    """The size of the batch at ``p`` if it is one like most, else 0.

    That is: of format v2, whole, neither compressed nor of a transaction nor control, with a header that can be (no
    record has fewer than 6 bytes), and all its records are wanted.
    """
    if available < 61 or p[16] != 2:
        return 0
    size: cython.longlong = _int32(p + 8)
    size += 12
    base_offset: cython.longlong = _int64(p)
    last_delta: cython.longlong = _int32(p + 23)
    count: cython.longlong = _int32(p + 57)
    if size < 61 or size > available or p[21] != 0 or (p[22] & 0xF7) != 0:
        return 0
    if count < 1 or count > limit or last_delta < count - 1 or count > (size - 61) // 6:
        return 0
    if base_offset < from_offset or base_offset >> 62:
        return 0
    return size


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
    """Decode whole batches as long as they are ordinary; returns where it stopped."""
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
            size: cython.Py_ssize_t = _ordinary_batch(batch, view.len - position, limit - len(out), next_offset)
            if size == 0:
                break
            if check_crc:
                checksum: cython.uint = crc32c(data[position + 21 : position + size])
                if checksum != cython.cast(cython.uint, _int32(batch + 17)):
                    break
            if origin is None or leader_epoch != _int32(batch + 12) or timestamp_type != (batch[22] >> 3) & 1:
                leader_epoch = _int32(batch + 12)
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
                    _int32(batch + 57),
                    cython.address(previous_delta),
                    _int64(batch),
                    _int32(batch + 23),
                    _int64(batch + 27),
                    _int64(batch + 35),
                    origin,
                    next_offset,
                )
                or p != batch + size
            ):
                del out[before:]  # the caller looks closer, and says what is wrong
                break
            next_offset = _int64(batch) + _int32(batch + 23) + 1
            position += size
        return position, next_offset, leader_epoch, timestamp_type
    finally:
        PyBuffer_Release(cython.address(view))


def open_payload(data, position, end):
    """The form of ``data[position:end]`` that ``decode_payload`` is fastest with: (data, position, end)."""
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
            raise corrupt_record(origin.topic, origin.partition, base_offset, index, _REASONS[failure])
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
    """The loop. Returns 0, or what is wrong with the record at ``index_place[0]``."""
    p: cython.p_const_uchar = place[0]
    end: cython.p_const_uchar
    index: cython.longlong = index_place[0]
    previous_delta: cython.longlong = previous_place[0]
    delta: cython.longlong
    timestamp: cython.ulonglong
    raw: cython.ulonglong = 0
    size: cython.Py_ssize_t
    key_size: cython.Py_ssize_t
    key_start: cython.p_const_uchar = p
    value_start: cython.p_const_uchar = p
    headers: tuple
    appended: cython.bint = origin.timestamp_type == 1
    skip: cython.bint
    failure: cython.int = 0
    record: ConsumerRecord
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
        p += 1  # attributes: unused
        p = read_varint(p, end, 64, cython.address(raw))
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
            failure = _OFFSET
            break
        skip = base_offset + delta < from_offset
        p = read_varint(p, end, 32, cython.address(raw))
        if p == cython.NULL:
            failure = _SHORT
            break
        key_size = -1
        if raw != 1:
            if raw & 1 or raw >> 1 > cython.cast(cython.ulonglong, end - p):
                failure = _KEY
                break
            key_size = raw >> 1
            key_start = p
            p += key_size
        p = read_varint(p, end, 32, cython.address(raw))
        if p == cython.NULL:
            failure = _SHORT
            break
        size = -1
        if raw != 1:
            if raw & 1 or raw >> 1 > cython.cast(cython.ulonglong, end - p):
                failure = _VALUE
                break
            size = raw >> 1
            value_start = p
            p += size
        p = read_varint(p, end, 32, cython.address(raw))
        if p == cython.NULL:
            failure = _SHORT
            break
        headers = ()
        if raw:
            # A header takes two bytes at least.
            if raw & 1 or raw >> 2 > cython.cast(cython.ulonglong, end - p):
                failure = _HEADER_COUNT
                break
            headers = _read_headers(cython.address(p), end, raw >> 1)
            if headers is None:
                failure = _HEADER
                break
        if p != end:
            failure = _SIZE
            break
        if not skip:
            record = ConsumerRecord.__new__(ConsumerRecord)
            record.offset = base_offset + delta
            record.timestamp = append_time if appended else cython.cast(cython.longlong, timestamp)
            record._key_size = cython.cast(cython.int, key_size)
            record._value_size = cython.cast(cython.int, size)
            record._origin = origin
            record.headers = headers
            if key_size >= 0:
                record.key = PyBytes_FromStringAndSize(cython.cast(cython.p_const_char, key_start), key_size)
            if size >= 0:
                record.value = PyBytes_FromStringAndSize(cython.cast(cython.p_const_char, value_start), size)
            out.append(record)
            wanted -= 1
        previous_delta = delta
        index += 1
    place[0] = p
    index_place[0] = index
    previous_place[0] = previous_delta
    return failure
