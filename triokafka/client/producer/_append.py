# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: binding=False, embedsignature=True, embedsignature.format=clinic
# mypy: ignore-errors
"""The short way of a record, from `send` into the batch that is being filled, to be compiled. Never imported as Python
(``triokafka.kernels``).

The twin, ``plain_append``, has the same interface with types and docstrings.
"""

from __future__ import annotations

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cython.cimports.cpython.dict import PyDict_GetItem
from cython.cimports.cpython.list import PyList_GET_ITEM, PyList_GET_SIZE
from cython.cimports.cpython.long import PyLong_AsLong, PyLong_CheckExact
from cython.cimports.cpython.object import PyObject
from cython.cimports.cpython.unicode import PyUnicode_CheckExact
from cython.cimports.posix.time import CLOCK_REALTIME, clock_gettime, timespec
from cython.cimports.triokafka.records._appender import append_record

from triokafka.errors import IllegalStateError
from triokafka.records.kernel import RecordAppender
from triokafka.structs import RecordMetadata

_M = cython.declare(cython.uint, 0x5BD1E995)
_NO_HEADERS = cython.declare(tuple, ())  # the only empty tuple that there is


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _wall_ns() -> cython.longlong:
    time = cython.declare(timespec)
    clock_gettime(CLOCK_REALTIME, cython.address(time))
    return cython.cast(cython.longlong, time.tv_sec) * 1_000_000_000 + time.tv_nsec


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _murmur2(data: cython.p_const_uchar, length: cython.Py_ssize_t) -> cython.uint:
    h: cython.uint = cython.cast(cython.uint, 0x9747B28C) ^ cython.cast(cython.uint, length)
    k: cython.uint
    while length >= 4:
        k = (
            data[0]
            | (cython.cast(cython.uint, data[1]) << 8)
            | (cython.cast(cython.uint, data[2]) << 16)
            | (cython.cast(cython.uint, data[3]) << 24)
        )
        k *= _M
        k ^= k >> 24
        h = (h * _M) ^ (k * _M)
        data += 4
        length -= 4
    if length:
        if length == 3:
            h ^= cython.cast(cython.uint, data[2]) << 16
        if length >= 2:
            h ^= cython.cast(cython.uint, data[1]) << 8
        h = (h ^ data[0]) * _M
    h ^= h >> 13
    h *= _M
    return h ^ (h >> 15)


def murmur2(data):
    """The 32-bit hash by which Kafka's clients spread keys; unsigned, with the bits of Java's ``Utils.murmur2``."""
    held: bytes = data if type(data) is bytes else bytes(data)
    return _murmur2(cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(held)), PyBytes_GET_SIZE(held))


@cython.no_gc
@cython.freelist(1024)
@cython.auto_pickle(False)
@cython.cclass
class Delivery:
    """The fate of one record. Await it, as often and from as many tasks as you like, for its `RecordMetadata`.

    Awaiting raises the error with which the record failed, and does not yield to other tasks when the record is settled
    already. Cancelling the wait does not recall the record. A failure that is never awaited, and for which no callback
    was given, is raised when the producer's block is left.
    """

    # Not tracked by the garbage collector, which makes it much cheaper to keep many. So no cycle may go through it: a
    # settled batch has let go of its callbacks, and raises copies of its error, whose tracebacks it does not hold.
    _batch = cython.declare(object)
    _timestamp = cython.declare(cython.longlong)
    _age = cython.declare(cython.double)
    _index = cython.declare(cython.int)
    _key_size = cython.declare(cython.int)
    _value_size = cython.declare(cython.int)

    def __init__(
        self,
        batch,
        index: cython.int,
        timestamp: cython.longlong,
        key_size: cython.int,
        value_size: cython.int,
        age: cython.double = 0.0,
    ):
        self._batch = batch
        self._index = index
        self._timestamp = timestamp
        self._key_size = key_size
        self._value_size = value_size
        self._age = age

    @property
    def topic(self):
        """The topic that the record was sent to."""
        return self._batch.topic_partition.topic

    @property
    def partition(self):
        """The partition that the record was sent to."""
        return self._batch.topic_partition.partition

    @property
    def done(self):
        """Whether the record is acknowledged or has failed."""
        return self._batch.piece_for(self._index)[0].done

    def result(self):
        """What awaiting would return or raise, without waiting.

        Raises:
            IllegalStateError: neither acknowledged nor failed yet.
        """
        batch, index = self._batch.piece_for(self._index)
        if not batch.done:
            raise IllegalStateError(f"the record for {batch.topic_partition} is still on its way; await the delivery")
        return self._settled(batch, index)

    def _settled(self, batch, index):
        error = batch.error_to_raise(index)
        if error is not None:
            raise error
        return self.metadata_in(batch, index)

    def metadata_in(self, batch, index):
        """The metadata of an acknowledged record that ended up at ``index`` of ``batch``."""
        base = batch.base_offset
        log_append_time = batch.log_append_time
        return RecordMetadata(
            batch.topic_partition.topic,
            batch.topic_partition.partition,
            base + index if base >= 0 else -1,
            self._timestamp if log_append_time == -1 else log_append_time,
            self._key_size,
            self._value_size,
            batch.attempts,
            max(0.0, batch.settled_at - batch.created_at - self._age) * 1000,
        )

    async def _wait(self):
        while True:
            batch, index = self._batch.piece_for(self._index)
            if batch.done:
                return self._settled(batch, index)
            await batch.wait()

    def __await__(self):
        return self._wait().__await__()

    def add_callback(self, callback):
        """Call ``callback`` once the record is settled: in the sender's task, or at once when it is settled already.

        It must not block; what it raises is logged. Callbacks of one partition run in the order of their records.
        """
        self._batch.add_callback(self, self._index, callback)

    def __repr__(self):
        return f"<Delivery {self.topic}-{self.partition} {'settled' if self.done else 'on its way'}>"


@cython.cclass
class QueueEnd:
    """The end of a partition's queue: the batch that is ``open`` for records, None when there is none."""

    _open = cython.declare(object)
    _appender = cython.declare(object)
    _opened_ns = cython.declare(cython.longlong)

    @property
    def open(self):
        return self._open

    @open.setter
    def open(self, batch):
        builder = None if batch is None else batch.builder
        # Only of this type may the C function be asked; with another the long way does it.
        self._appender = builder if isinstance(builder, RecordAppender) else None
        self._open = batch
        self._opened_ns = _wall_ns()


@cython.cclass
class QueueEnds:
    """The queues of a topic by partition number, and the ``sticky`` partition, for records without key."""

    queues = cython.declare(list, visibility="public")
    sticky = cython.declare(cython.Py_ssize_t, visibility="public")

    def __init__(self):
        self.queues = []
        self.sticky = -1


@cython.final
@cython.cclass
class ShortWay:
    """Puts records into open batches. What it returns None for needs the long way: nothing has happened then."""

    _topics = cython.declare(dict)
    _wall_ms = cython.declare(object)
    _now = cython.declare(object)
    _system_clock = cython.declare(cython.bint)
    _enabled = cython.declare(cython.bint)

    def __init__(self, topics: dict, wall_ms, now, system_clock: cython.bint, enabled: cython.bint):
        self._topics = topics
        self._wall_ms = wall_ms
        self._now = now
        self._system_clock = system_clock
        self._enabled = enabled

    def append(self, topic, value, key, partition, timestamp_ms, headers, on_delivery):
        """The arguments are those of `send`, unchecked."""
        number: cython.Py_ssize_t
        if not self._enabled or timestamp_ms is not None or on_delivery is not None:
            return None
        if (headers is not _NO_HEADERS and headers) or not PyUnicode_CheckExact(topic):
            return None
        found: cython.pointer(PyObject) = PyDict_GetItem(self._topics, topic)
        if found is cython.NULL:
            return None
        known: QueueEnds = cython.cast(QueueEnds, found)
        count: cython.Py_ssize_t = PyList_GET_SIZE(known.queues)
        if partition is not None:
            if not PyLong_CheckExact(partition):
                return None
            try:
                number = PyLong_AsLong(partition)
            except OverflowError:
                return None
        elif key is None:
            number = known.sticky
        elif PyBytes_CheckExact(key) and count:
            number = (
                _murmur2(cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(key)), PyBytes_GET_SIZE(key)) & 0x7FFFFFFF
            ) % count
        else:
            return None
        if not 0 <= number < count:
            return None
        return self._put(cython.cast(QueueEnd, PyList_GET_ITEM(known.queues, number)), value, key)

    def append_to(self, end: QueueEnd, value, key, timestamp_ms, headers):
        """To one partition, known beforehand."""
        if not self._enabled or timestamp_ms is not None or (headers is not _NO_HEADERS and headers):
            return None
        return self._put(end, value, key)

    @cython.cfunc
    def _put(self, end: QueueEnd, value, key):
        time: cython.longlong = 0
        timestamp: cython.longlong
        index: cython.longlong
        key_size: cython.Py_ssize_t = -1
        value_size: cython.Py_ssize_t = -1
        plain: cython.bint = True
        if end._appender is None:
            return None
        if key is not None:
            if PyBytes_CheckExact(key):
                key_size = PyBytes_GET_SIZE(key)
            elif type(key) is bytearray or type(key) is memoryview:
                plain = False
            else:
                return None
        if value is not None:
            if PyBytes_CheckExact(value):
                value_size = PyBytes_GET_SIZE(value)
            elif type(value) is bytearray or type(value) is memoryview:
                plain = False
            else:
                return None
        if self._system_clock:
            time = _wall_ns()
            timestamp = time // 1_000_000
        else:
            timestamp = self._wall_ms()
        if plain:
            index = append_record(end._appender, timestamp, key, value)
        else:
            if key is not None:
                key_size = len(key) if type(key) is not memoryview else key.nbytes
            if value is not None:
                value_size = len(value) if type(value) is not memoryview else value.nbytes
            try:
                index = append_record(end._appender, timestamp, key, value)
            except BufferError:
                return None
        if index < 0:
            return None
        delivery: Delivery = Delivery.__new__(Delivery)
        delivery._batch = end._open
        delivery._index = cython.cast(cython.int, index)
        delivery._timestamp = timestamp
        delivery._key_size = cython.cast(cython.int, key_size)
        delivery._value_size = cython.cast(cython.int, value_size)
        if self._system_clock:
            delivery._age = cython.cast(cython.double, time - end._opened_ns) * 1e-9
        else:
            delivery._age = self._now() - end._open.created_at
        return delivery
