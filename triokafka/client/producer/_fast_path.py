# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: binding=False, embedsignature=True, embedsignature.format=clinic
# mypy: ignore-errors
"""The fast path of a record, from `send` into the open batch, to be compiled. Never imported as Python
(``triokafka.kernels``).

The twin, ``plain_fast_path``, has the same interface with types and docstrings.
"""

from __future__ import annotations

import sys

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cython.cimports.cpython.dict import PyDict_GetItemWithError
from cython.cimports.cpython.exc import PyErr_WarnEx
from cython.cimports.cpython.list import PyList_GET_ITEM, PyList_GET_SIZE
from cython.cimports.cpython.long import PyLong_AsLong, PyLong_CheckExact
from cython.cimports.cpython.object import PyObject
from cython.cimports.cpython.ref import Py_DECREF, Py_INCREF
from cython.cimports.cpython.unicode import PyUnicode_CheckExact
from cython.cimports.posix.time import CLOCK_REALTIME, clock_gettime, timespec
from cython.cimports.triokafka.records._appender import append_record
from cython.cimports.triokafka.records._coroutine import PYGEN_NEXT, PYGEN_RETURN, PyIter_Send, set_resume
from cython.cimports.triokafka.records._murmur2 import murmur2

from triokafka.errors import IllegalStateError
from triokafka.records.kernel import RecordAppender
from triokafka.structs import RecordMetadata

CHEAP_TO_AWAIT = sys.version_info < (3, 12)

_NO_HEADERS = cython.declare(tuple, ())  # CPython has one empty tuple


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _wall_ns() -> cython.longlong:
    time = cython.declare(timespec)
    clock_gettime(CLOCK_REALTIME, cython.address(time))
    return cython.cast(cython.longlong, time.tv_sec) * 1_000_000_000 + time.tv_nsec


@cython.no_gc
@cython.freelist(1024)
@cython.auto_pickle(False)
@cython.cclass
class Delivery:
    """The outcome of one record. Await it, as often and from as many tasks as you like, for its `RecordMetadata`.

    Awaiting raises the error of a failed record, and does not yield to other tasks when the record is settled already.
    Cancelling the wait does not recall the record. Leaving the producer's block raises a failure that was never
    awaited and had no callback.
    """

    # Not tracked by the garbage collector, which makes it much cheaper to keep many. So no reference cycle may include
    # it: a settled batch drops its callbacks, and raises copies of its error, whose tracebacks it does not hold.
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
        """Return or raise the outcome without waiting.

        Raises:
            IllegalStateError: neither acknowledged nor failed yet.
        """
        batch, index = self._batch.piece_for(self._index)
        if not batch.done:
            raise IllegalStateError(
                f"the record for {batch.topic_partition} is neither acknowledged nor failed yet; await the delivery"
            )
        return self._settled(batch, index)

    def _settled(self, batch, index):
        error = batch.error_to_raise(index)
        if error is not None:
            raise error
        return self.metadata_in(batch, index)

    def metadata_in(self, batch, index):
        """Return the metadata of the record at ``index`` of an acknowledged batch."""
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
        """Call ``callback`` when the record is settled, in a background task of the producer; or now, if it is settled.

        It must not block; its errors are logged. Callbacks of one partition run in the order of their records.
        """
        self._batch.add_callback(self, self._index, callback)

    def place(self):
        """Return the arguments of `Deliveries.add` for this record."""
        return self._batch, self._index, 1, self._timestamp, self._age

    def __repr__(self):
        return f"<Delivery {self.topic}-{self.partition} {'settled' if self.done else 'on its way'}>"


@cython.cfunc
@cython.inline
def _with_callback(delivery, on_delivery):
    """Add the callback to the delivery, if neither is None; return the delivery."""
    if on_delivery is not None and delivery is not None:
        delivery.add_callback(on_delivery)
    return delivery


@cython.cclass
class QueueTail:
    """The end of a partition's queue: the batch that is ``open`` for records, or None."""

    _open = cython.declare(object)
    _appender = cython.declare(object)
    _opened_ns = cython.declare(cython.longlong)

    @property
    def open(self):
        return self._open

    @open.setter
    def open(self, batch):
        builder = None if batch is None else batch.builder
        # The C function takes only this type; another takes the slow path.
        self._appender = builder if isinstance(builder, RecordAppender) else None
        self._open = batch
        self._opened_ns = _wall_ns()


@cython.cclass
class TopicQueues:
    """The queues of a topic by partition number, and the ``sticky`` partition, for records without key."""

    queues = cython.declare(list, visibility="public")
    sticky = cython.declare(cython.Py_ssize_t, visibility="public")

    def __init__(self):
        self.queues = []
        self.sticky = -1


@cython.final
@cython.cclass
class FastPath:
    """Puts records into open batches; anything unusual takes the slow path."""

    _topics = cython.declare(dict)
    _wall_ms = cython.declare(object)
    _now = cython.declare(object)
    _next_queue = cython.declare(object)
    _slow_path = cython.declare(object)
    _slow_path_now = cython.declare(object)
    _system_clock = cython.declare(cython.bint)
    _enabled = cython.declare(cython.bint)

    def __init__(
        self,
        topics: dict,
        wall_ms,
        now,
        system_clock: cython.bint,
        enabled: cython.bint,
        next_queue,
        slow_path,
        slow_path_now,
    ):
        self._topics = topics
        self._wall_ms = wall_ms
        self._now = now
        self._system_clock = system_clock
        self._enabled = enabled
        self._next_queue = next_queue
        self._slow_path = slow_path
        self._slow_path_now = slow_path_now

    def append(self, topic, value, key, partition, timestamp_ms, headers, on_delivery):
        """Return the delivery, or None without any effect when the record must take the slow path."""
        if not self._accepts(timestamp_ms, headers, on_delivery):
            return None
        return _with_callback(self._append(topic, value, key, partition), on_delivery)

    def send(self, topic, value=None, *, key=None, partition=None, timestamp_ms=None, headers=(), on_delivery=None):
        """Send one record; `Producer.send` has the contract."""
        if not self._accepts(timestamp_ms, headers, on_delivery):
            return self._slow_path(topic, value, key, partition, timestamp_ms, headers, on_delivery)
        sending: _SendCoroutine = _SendCoroutine.__new__(_SendCoroutine)
        sending._path = self
        sending._topic = topic
        sending._value = value
        sending._key = key
        sending._partition = partition
        sending._on_delivery = on_delivery
        return sending

    def send_nowait(
        self, topic, value=None, *, key=None, partition=None, timestamp_ms=None, headers=(), on_delivery=None
    ):
        """Send one record without waiting; `Producer.send_nowait` has the contract."""
        if self._accepts(timestamp_ms, headers, on_delivery):
            delivery = self._append(topic, value, key, partition)
            if delivery is not None:
                return _with_callback(delivery, on_delivery)
        return self._slow_path_now(topic, value, key, partition, timestamp_ms, headers, on_delivery)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1)
    def _accepts(self, timestamp_ms, headers, on_delivery) -> cython.int:
        """Whether a record with these arguments may take the fast path."""
        if not self._enabled or timestamp_ms is not None or (on_delivery is not None and not callable(on_delivery)):
            return 0
        return 1 if headers is _NO_HEADERS or not headers else 0

    @cython.cfunc
    def _append(self, topic, value, key, partition):
        number: cython.Py_ssize_t
        sticky: cython.bint = False
        if not PyUnicode_CheckExact(topic):
            return None
        found: cython.pointer(PyObject) = PyDict_GetItemWithError(self._topics, topic)
        if found is cython.NULL:
            return None
        known: TopicQueues = cython.cast(TopicQueues, found)
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
            sticky = True
        elif PyBytes_CheckExact(key) and count:
            number = (
                murmur2(cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(key)), PyBytes_GET_SIZE(key)) & 0x7FFFFFFF
            ) % count
        else:
            return None
        if not 0 <= number < count:
            return None
        end: QueueTail = cython.cast(QueueTail, PyList_GET_ITEM(known.queues, number))
        return self._put(end, known if sticky else None, value, key)

    @cython.cfunc
    def _put_next(self, full: QueueTail, known, value, key):
        end = self._next_queue(full, known, key, value, _NO_HEADERS)
        return None if end is None else self._put(end, known, value, key)

    @cython.cfunc
    def _put(self, end: QueueTail, known, value, key):
        time: cython.longlong = 0
        timestamp: cython.longlong
        index: cython.longlong
        key_size: cython.Py_ssize_t = -1
        value_size: cython.Py_ssize_t = -1
        plain: cython.bint = True
        if end._appender is None and end._open is not None:
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
        if end._open is None:
            return self._put_next(end, known, value, key) if plain else None
        if self._system_clock:
            time = _wall_ns()
            timestamp = time // 1_000_000
        else:
            timestamp = self._wall_ms()
        if plain:
            index = append_record(end._appender, timestamp, key, value)
            if index < 0:
                return self._put_next(end, known, value, key)
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


@cython.final
@cython.cclass
class BoundFastPath:
    """A `FastPath` to one partition."""

    _path = cython.declare(FastPath)
    _end = cython.declare(QueueTail)

    def __init__(self, path: FastPath, end: QueueTail):
        self._path = path
        self._end = end

    def append(self, value, key, timestamp_ms, headers, on_delivery):
        """As `FastPath.append`."""
        if not self._path._accepts(timestamp_ms, headers, on_delivery):
            return None
        return _with_callback(self._path._put(self._end, None, value, key), on_delivery)

    def send(self, value=None, *, key=None, timestamp_ms=None, headers=(), on_delivery=None):
        """Send to the bound partition, as `Producer.send`."""
        if not self._path._accepts(timestamp_ms, headers, on_delivery):
            topic, partition = self._end.topic_partition
            return self._path._slow_path(topic, value, key, partition, timestamp_ms, headers, on_delivery)
        sending: _SendCoroutine = _SendCoroutine.__new__(_SendCoroutine)
        sending._path = self._path
        sending._end = self._end
        sending._value = value
        sending._key = key
        sending._on_delivery = on_delivery
        return sending

    def send_nowait(self, value=None, *, key=None, timestamp_ms=None, headers=(), on_delivery=None):
        """Send to the bound partition, as `Producer.send_nowait`."""
        if self._path._accepts(timestamp_ms, headers, on_delivery):
            delivery = self._path._put(self._end, None, value, key)
            if delivery is not None:
                return _with_callback(delivery, on_delivery)
        topic, partition = self._end.topic_partition
        return self._path._slow_path_now(topic, value, key, partition, timestamp_ms, headers, on_delivery)


_NEW = cython.declare(cython.int, 0)
_WAITING = cython.declare(cython.int, 1)
_DONE = cython.declare(cython.int, 2)


@cython.final
@cython.freelist(64)
@cython.auto_pickle(False)
@cython.cclass
class _SendCoroutine:
    """The coroutine of one `send`, which usually does all of its work when it is first resumed.

    A Python coroutine with its frame would cost more than that work. If the record takes the slow path, this object
    continues as the slow path's coroutine, which is created only then.
    """

    _path = cython.declare(FastPath)
    _end = cython.declare(QueueTail)
    _topic = cython.declare(object)
    _value = cython.declare(object)
    _key = cython.declare(object)
    _partition = cython.declare(object)
    _on_delivery = cython.declare(object)
    _rest = cython.declare(object)
    _state = cython.declare(cython.int)

    def __dealloc__(self):
        if self._state == _NEW:
            PyErr_WarnEx(RuntimeWarning, b"coroutine 'send' was never awaited", 1)

    def __await__(self):
        return self

    def __next__(self):
        return self._advance(None)

    @property
    def cr_frame(self):
        """The frame of the slow path, for stack traces of waiting tasks; else None."""
        return self._rest.cr_frame if self._state == _WAITING else None

    @property
    def cr_await(self):
        """The object that the slow path awaits; else None."""
        return self._rest.cr_await if self._state == _WAITING else None

    def send(self, value):
        """Run until the send waits; return the object that it waits for. End with `StopIteration` of the delivery."""
        return self._advance(value)

    def throw(self, kind, error=None, traceback=None):
        """Raise an error at the point where the send waits."""
        if isinstance(kind, BaseException):
            error = kind
        elif not isinstance(error, BaseException):
            error = kind() if error is None else kind(error)
        if traceback is not None:
            error = error.with_traceback(traceback)
        if self._state != _WAITING:
            if self._state == _DONE:
                raise RuntimeError("cannot reuse already awaited coroutine")
            self._state = _DONE
            raise error
        try:
            return self._rest.throw(error)
        except BaseException:
            self._end_it()
            raise

    def close(self):
        """End the send at the point where it waits."""
        rest = self._rest
        self._end_it()
        if rest is not None:
            rest.close()

    @cython.cfunc
    def _advance(self, value):
        result: cython.pointer(PyObject) = cython.NULL
        status: cython.int = _resume(
            cython.cast(cython.pointer(PyObject), self),
            cython.cast(cython.pointer(PyObject), value),
            cython.address(result),
        )
        answer = cython.cast(object, result)
        Py_DECREF(answer)  # it was handed over
        if status == PYGEN_RETURN:
            raise StopIteration(answer)
        return answer

    @cython.cfunc
    def _end_it(self):
        self._state = _DONE
        self._rest = None

    @cython.cfunc
    def _start(self):
        """Return the delivery, or None when the slow path has begun."""
        self._state = _DONE
        if self._end is not None:
            delivery = self._path._put(self._end, None, self._value, self._key)
            if delivery is None:
                self._topic, self._partition = self._end.topic_partition
        else:
            delivery = self._path._append(self._topic, self._value, self._key, self._partition)
        if delivery is None:
            self._rest = self._path._slow_path(
                self._topic, self._value, self._key, self._partition, None, _NO_HEADERS, self._on_delivery
            )
            self._state = _WAITING
        return _with_callback(delivery, self._on_delivery)


@cython.cfunc
@cython.exceptval(-1)
def _resume(
    coroutine: cython.pointer(PyObject),
    value: cython.pointer(PyObject),
    result: cython.pointer(cython.pointer(PyObject)),
) -> cython.int:
    sending: _SendCoroutine = cython.cast(_SendCoroutine, coroutine)
    result[0] = cython.NULL
    if sending._state == _NEW:
        if cython.cast(object, value) is not None:
            raise TypeError("can't send non-None value to a just-started coroutine")
        delivery = sending._start()
        if delivery is not None:
            Py_INCREF(delivery)
            result[0] = cython.cast(cython.pointer(PyObject), delivery)
            return PYGEN_RETURN
    elif sending._state == _DONE:
        raise RuntimeError("cannot reuse already awaited coroutine")
    status: cython.int = PyIter_Send(cython.cast(cython.pointer(PyObject), sending._rest), value, result)
    if status != PYGEN_NEXT:
        sending._end_it()
    return status


set_resume(_SendCoroutine, _resume)
