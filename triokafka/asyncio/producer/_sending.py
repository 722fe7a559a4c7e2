# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# mypy: ignore-errors
"""The path of a record from `send` into the open chunk, and its future, to be compiled. Never imported as Python
(``triokafka.kernels``).

The twin, ``plain_sending``, has the same interface with types and docstrings.
"""

from __future__ import annotations

import asyncio
import copy

import cython
from cython.cimports.cpython.bytes import PyBytes_CheckExact, PyBytes_GET_SIZE
from cython.cimports.cpython.dict import PyDict_GetItemWithError
from cython.cimports.cpython.exc import PyErr_WarnEx
from cython.cimports.cpython.list import PyList_GET_ITEM, PyList_GET_SIZE
from cython.cimports.cpython.long import PyLong_AsLong, PyLong_CheckExact
from cython.cimports.cpython.object import PyObject
from cython.cimports.cpython.ref import Py_DECREF, Py_INCREF
from cython.cimports.cpython.tuple import PyTuple_SET_ITEM
from cython.cimports.cpython.unicode import PyUnicode_CheckExact
from cython.cimports.triokafka.records._coroutine import (
    PYGEN_NEXT,
    PYGEN_RETURN,
    PyIter_Send,
    new_tuple,
    set_resume,
    take_code,
)

from triokafka.asyncio.structs import RecordMetadata

_future_type = cython.declare(object, asyncio.Future)
_metadata_type = cython.declare(object, RecordMetadata)


@cython.final
@cython.cclass
class Acknowledged:
    """The outcome of consecutive records of a chunk, from index ``first`` on, that were written with one batch."""

    _place = cython.declare(object)
    _topic = cython.declare(object)
    _partition = cython.declare(object)
    _offsets = cython.declare(object)
    _timestamps = cython.declare(object)
    _stamped = cython.declare(object)
    _first = cython.declare(cython.Py_ssize_t)
    _base_offset = cython.declare(cython.longlong)
    _one_offset = cython.declare(cython.bint)
    _counts_offsets = cython.declare(cython.bint)
    _one_timestamp = cython.declare(cython.bint)

    def __init__(self, place, first, offsets, timestamps, stamped):
        self._place = place
        if place is not None:
            self._topic, self._partition = place
        self._first = first
        self._offsets = offsets
        self._timestamps = timestamps
        self._stamped = stamped
        self._one_offset = isinstance(offsets, int)
        if isinstance(offsets, range) and offsets.step == 1:
            self._counts_offsets = True
            self._base_offset = offsets.start
        self._one_timestamp = isinstance(timestamps, int)

    @cython.ccall
    def metadata(self, index: cython.Py_ssize_t):
        """Return the metadata of the record at ``index`` of the chunk."""
        if self._place is None:
            return None
        index -= self._first
        if self._counts_offsets:
            offset = self._base_offset + index
        else:
            offset = self._offsets if self._one_offset else self._offsets[index]
        timestamp = self._timestamps if self._one_timestamp else self._timestamps[index]
        row = new_tuple(_metadata_type, 7)
        _set(row, 0, self._topic)
        _set(row, 1, self._partition)
        _set(row, 2, self._place)
        _set(row, 3, offset)
        _set(row, 4, timestamp)
        _set(row, 5, self._stamped)
        _set(row, 6, None)
        return row


@cython.cfunc
@cython.inline
def _set(row, place: cython.Py_ssize_t, value):
    """Set an element of a new tuple."""
    Py_INCREF(value)
    PyTuple_SET_ITEM(row, place, value)


@cython.final
@cython.cclass
class Chunk:
    """Records of one topic that cross to the loop thread together, in columns, and their outcomes."""

    loop = cython.declare(object, visibility="readonly")
    topic = cython.declare(object, visibility="readonly")
    acked = cython.declare(cython.bint, visibility="readonly")
    values = cython.declare(list, visibility="readonly")
    keys = cython.declare(list, visibility="readonly")
    partitions = cython.declare(list, visibility="readonly")
    timestamps = cython.declare(list, visibility="readonly")
    headers = cython.declare(list, visibility="readonly")
    size = cython.declare(cython.Py_ssize_t, visibility="readonly")
    _outcomes = cython.declare(list)
    _waited_for = cython.declare(dict)
    _failed = cython.declare(cython.bint)
    _dropped = cython.declare(cython.bint)

    def __init__(self, loop, topic, acked):
        self.loop = loop
        self.topic = topic
        self.acked = acked
        self.values = []
        self._outcomes = []
        self._waited_for = {}

    def append(self, value, key, partition, timestamp_ms, headers, size: cython.Py_ssize_t):
        """Add a record of ``size`` bytes, and return its future."""
        index: cython.Py_ssize_t = PyList_GET_SIZE(self.values)
        if timestamp_ms is not None:
            self.timestamps = _put(self.timestamps, index, timestamp_ms)
        if headers:
            self.headers = _put(self.headers, index, headers)
        return self._append(value, key, partition, size)

    @cython.cfunc
    def _append(self, value, key, partition, size: cython.Py_ssize_t):
        index: cython.Py_ssize_t = PyList_GET_SIZE(self.values)
        self.values.append(value)
        if key is not None:
            self.keys = _put(self.keys, index, key)
        if partition is not None:
            self.partitions = _put(self.partitions, index, partition)
        self.size += size
        future: SendFuture = SendFuture.__new__(SendFuture)
        future._chunk = self
        future._index = index
        return future

    def columns(self):
        """Return the arguments of `Producer.send_many`; the chunk drops the columns."""
        count: cython.Py_ssize_t = PyList_GET_SIZE(self.values)
        columns = {"values": self.values}
        if self.keys is not None:
            columns["keys"] = _padded(self.keys, count)
        if self.partitions is not None:
            columns["partition"] = _padded(self.partitions, count)
        if self.timestamps is not None:
            columns["timestamp_ms"] = _padded(self.timestamps, count)
        if self.headers is not None:
            columns["headers"] = [one or [] for one in _padded(self.headers, count)]
        self.values = []
        self.keys = self.partitions = self.timestamps = self.headers = None
        return columns

    def settle(self, first: cython.Py_ssize_t, end: cython.Py_ssize_t, outcome):
        """Give the records from ``first`` to before ``end`` an outcome: `Acknowledged`, `RecordMetadata`, an error."""
        outcomes = self._outcomes
        if PyList_GET_SIZE(outcomes) < end:
            outcomes.extend([None] * (end - PyList_GET_SIZE(outcomes)))
        index: cython.Py_ssize_t
        for index in range(first, end):
            outcomes[index] = outcome
        if isinstance(outcome, Exception):
            self._failed = True
            if self._dropped:
                self._report(first)
        if self._waited_for:
            for index in range(first, end):
                future = self._waited_for.pop(index, None)
                if future is not None:
                    self._give(future, index)

    def forget(self):
        """Do not report the failures of futures that were dropped so far."""
        self._dropped = False

    @cython.cfunc
    @cython.inline
    def _outcome(self, index: cython.Py_ssize_t):
        if index < PyList_GET_SIZE(self._outcomes):
            return cython.cast(object, PyList_GET_ITEM(self._outcomes, index))
        return None

    @cython.cfunc
    def _value(self, index: cython.Py_ssize_t):
        outcome = cython.cast(object, PyList_GET_ITEM(self._outcomes, index))
        if type(outcome) is Acknowledged:
            acknowledged: Acknowledged = outcome
            return acknowledged.metadata(index)
        if isinstance(outcome, Exception):
            raise copy.copy(outcome)
        return outcome

    @cython.cfunc
    def _future(self, index: cython.Py_ssize_t):
        future = self.loop.create_future()
        if self._outcome(index) is None:
            self._waited_for[index] = future
        else:
            self._give(future, index)
        return future

    @cython.cfunc
    def _give(self, future, index: cython.Py_ssize_t):
        if future.done():
            return None
        try:
            value = self._value(index)
        except Exception as error:
            future.set_exception(error.with_traceback(None))
        else:
            future.set_result(value)
        return None

    @cython.cfunc
    def _report(self, index: cython.Py_ssize_t):
        outcome = self._outcome(index)
        if isinstance(outcome, Exception) and not self.loop.is_closed():
            self.loop.call_exception_handler(
                {"message": "SendFuture exception was never retrieved", "exception": copy.copy(outcome)}
            )
        return None


# Programs hold many futures at once. Those that come from the list of free ones do not count as allocations, of which
# enough start the garbage collector.
@cython.final
@cython.freelist(32768)
@cython.auto_pickle(False)
@cython.cclass
class SendFuture:
    """The outcome of one record: an `asyncio.Future` for awaiting, `asyncio.wait`, `asyncio.gather` and callbacks.

    It is its own iterator, without a state: the first resumption returns the result of a settled record, or the real
    future, for which the task waits; the next one returns the result.
    """

    _chunk = cython.declare(Chunk)
    _future = cython.declare(object)
    _index = cython.declare(cython.Py_ssize_t)
    _seen = cython.declare(cython.bint)
    __weakref__ = cython.declare(object)

    def __init__(self, chunk: Chunk, index: cython.Py_ssize_t):
        self._chunk = chunk
        self._index = index

    def __dealloc__(self):
        if self._chunk is not None and self._future is None and not self._seen:
            if self._chunk._outcome(self._index) is None:
                self._chunk._dropped = True
            elif self._chunk._failed:
                self._chunk._report(self._index)

    @property
    def __class__(self):
        """`asyncio.Future`, for programs that ask with `isinstance`."""
        return _future_type

    @cython.cfunc
    def _real(self):
        if self._future is None:
            self._future = self._chunk._future(self._index)
        return self._future

    def done(self):
        """Whether the record is acknowledged or has failed, or the future was cancelled."""
        if self._future is not None:
            return self._future.done()
        return self._chunk._outcome(self._index) is not None

    def result(self):
        """Return the metadata, or raise the error. Raises `InvalidStateError` before."""
        if self._future is not None or self._chunk._outcome(self._index) is None:
            return self._real().result()
        self._seen = True
        return self._chunk._value(self._index)

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def exception(self):
        """Return the error, or None. Raises `InvalidStateError` before."""
        return self._real().exception()

    def cancelled(self):
        """Whether the future was cancelled."""
        return self._future is not None and self._future.cancelled()

    def cancel(self, msg=None):
        """Cancel the future, not the record. Return False if it is done."""
        return self._real().cancel(msg)

    def add_done_callback(self, fn, *, context=None):
        """Call ``fn`` with this future from the loop, when it is done."""
        self._real().add_done_callback(_Callback(fn, self), context=context)

    def remove_done_callback(self, fn):
        """Remove a callback; return how many times it was there."""
        return self._real().remove_done_callback(_Callback(fn, self))

    def get_loop(self):
        """Return the future's loop."""
        return self._chunk.loop

    def __getattr__(self, name):
        return getattr(self._real(), name)

    @property
    def _asyncio_future_blocking(self):
        return self._real()._asyncio_future_blocking

    @_asyncio_future_blocking.setter
    def _asyncio_future_blocking(self, value):
        self._real()._asyncio_future_blocking = value

    def __repr__(self):
        return f"<SendFuture of {self._chunk.topic} {'done' if self.done() else 'pending'}>"


@cython.cfunc
@cython.exceptval(-1)
def _resume(
    awaited: cython.pointer(PyObject),
    value: cython.pointer(PyObject),
    result: cython.pointer(cython.pointer(PyObject)),
) -> cython.int:
    future: SendFuture = cython.cast(SendFuture, awaited)
    result[0] = cython.NULL
    if future._future is None and future._chunk._outcome(future._index) is None:
        future._real()
    if future._future is None:
        future._seen = True
        answer = future._chunk._value(future._index)
    elif future._future.done():
        answer = future._future.result()
    else:
        answer = future._future
        answer._asyncio_future_blocking = True
        Py_INCREF(answer)
        result[0] = cython.cast(cython.pointer(PyObject), answer)
        return PYGEN_NEXT
    Py_INCREF(answer)
    result[0] = cython.cast(cython.pointer(PyObject), answer)
    return PYGEN_RETURN


set_resume(SendFuture, _resume)


@cython.final
@cython.cclass
class _Callback:
    _function = cython.declare(object)
    _future = cython.declare(SendFuture)

    def __init__(self, function, future: SendFuture):
        self._function = function
        self._future = future

    def __call__(self, real):
        return self._function(self._future)

    def __eq__(self, other):
        if type(other) is not _Callback:
            return False
        another: _Callback = other
        return self._future is another._future and self._function == another._function

    def __hash__(self):
        return hash(self._function)


@cython.cclass
class Topic:
    """A topic as the fast path knows it: the number of partitions, and the chunk that is being filled."""

    chunk = cython.declare(Chunk, visibility="public")
    count = cython.declare(cython.long, visibility="public")


@cython.final
@cython.cclass
class SendMethod:
    """The descriptor of `AIOKafkaProducer.send`: for an object its ``_send``, for the class the function."""

    _function = cython.declare(object)

    def __init__(self, function):
        self._function = function

    def __get__(self, instance, owner):
        return self._function if instance is None else instance._send

    def __call__(self, *arguments, **options):
        """Call the function. With ``__func__``, `unittest.mock` takes this for an asynchronous method."""
        return self._function(*arguments, **options)

    @property
    def __func__(self):
        return self._function


@cython.final
@cython.cclass
class SendPath:
    """Puts records into open chunks; anything unusual takes ``slow_path``, which has the arguments of `send`."""

    enabled = cython.declare(cython.bint, visibility="public")
    _topics = cython.declare(dict)
    _slow_path = cython.declare(object)
    _overhead = cython.declare(cython.Py_ssize_t)
    _most_records = cython.declare(cython.Py_ssize_t)
    _most_bytes = cython.declare(cython.Py_ssize_t)

    def __init__(self, topics: dict, slow_path, overhead, most_records, most_bytes):
        self._topics = topics
        self._slow_path = slow_path
        self._overhead = overhead
        self._most_records = most_records
        self._most_bytes = most_bytes

    def send(self, topic, value=None, key=None, partition=None, timestamp_ms=None, headers=None):
        """Send one record; `AIOKafkaProducer.send` has the contract."""
        sending: _SendCoroutine = _SendCoroutine.__new__(_SendCoroutine)
        sending._path = self
        sending._topic = topic
        sending._value = value
        sending._key = key
        sending._partition = partition
        sending._timestamp_ms = timestamp_ms
        sending._headers = headers
        return sending

    async def _described_send(self, topic, value=None, key=None, partition=None, timestamp_ms=None, headers=None):
        """Lend `send` its code object: `inspect.iscoroutinefunction` looks there."""

    def append(self, topic, value, key, partition):
        """Return the future, or None without any effect if the record must take the slow path."""
        return self._append(topic, value, key, partition)

    @cython.cfunc
    def _append(self, topic, value, key, partition):
        if not self.enabled or not PyUnicode_CheckExact(topic) or not PyBytes_CheckExact(value):
            return None
        found: cython.pointer(PyObject) = PyDict_GetItemWithError(self._topics, topic)
        if found == cython.NULL:
            return None
        known: Topic = cython.cast(Topic, found)
        chunk: Chunk = known.chunk
        if chunk is None:
            return None
        size: cython.Py_ssize_t = self._overhead + PyBytes_GET_SIZE(value)
        if key is not None:
            if not PyBytes_CheckExact(key):
                return None
            size += PyBytes_GET_SIZE(key)
        if partition is not None and not (PyLong_CheckExact(partition) and 0 <= PyLong_AsLong(partition) < known.count):
            return None
        if PyList_GET_SIZE(chunk.values) >= self._most_records or chunk.size + size > self._most_bytes:
            return None
        return chunk._append(value, key, partition, size)


@cython.cfunc
def _put(column, index: cython.Py_ssize_t, value) -> list:
    found: list = [] if column is None else column
    if PyList_GET_SIZE(found) < index:
        _padded(found, index)
    found.append(value)
    return found


@cython.cfunc
def _padded(column: list, count: cython.Py_ssize_t) -> list:
    if PyList_GET_SIZE(column) < count:
        column.extend([None] * (count - PyList_GET_SIZE(column)))
    return column


_NEW = cython.declare(cython.int, 0)
_WAITING = cython.declare(cython.int, 1)
_DONE = cython.declare(cython.int, 2)


@cython.final
@cython.freelist(64)
@cython.auto_pickle(False)
@cython.cclass
class _SendCoroutine:
    """The coroutine of one `send`, which usually does all of its work when it is first resumed.

    A coroutine with a frame would cost more than that work. If the record takes the slow path, this object continues as
    the slow path's coroutine, which is created only then.
    """

    _path = cython.declare(SendPath)
    _topic = cython.declare(object)
    _value = cython.declare(object)
    _key = cython.declare(object)
    _partition = cython.declare(object)
    _timestamp_ms = cython.declare(object)
    _headers = cython.declare(object)
    _rest = cython.declare(object)
    _state = cython.declare(cython.int)

    def __dealloc__(self):
        if self._state == _NEW:
            PyErr_WarnEx(RuntimeWarning, b"coroutine 'AIOKafkaProducer.send' was never awaited", 1)

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
        """Run until the send waits; return the object that it waits for. End with `StopIteration` of the future."""
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
            self._end()
            raise

    def close(self):
        """End the send at the point where it waits."""
        rest = self._rest
        self._end()
        if rest is not None:
            rest.close()

    @cython.cfunc
    def _advance(self, value):
        result: cython.pointer(PyObject) = cython.NULL
        status: cython.int = _resume_send(
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
    def _end(self):
        self._state = _DONE
        self._rest = None

    @cython.cfunc
    def _start(self):
        """Return the future, or None when the slow path has begun."""
        self._state = _DONE
        if self._timestamp_ms is None and not self._headers:
            future = self._path._append(self._topic, self._value, self._key, self._partition)
            if future is not None:
                return future
        self._rest = self._path._slow_path(
            self._topic, self._value, self._key, self._partition, self._timestamp_ms, self._headers
        )
        self._state = _WAITING
        return None


@cython.cfunc
@cython.exceptval(-1)
def _resume_send(
    coroutine: cython.pointer(PyObject),
    value: cython.pointer(PyObject),
    result: cython.pointer(cython.pointer(PyObject)),
) -> cython.int:
    sending: _SendCoroutine = cython.cast(_SendCoroutine, coroutine)
    result[0] = cython.NULL
    if sending._state == _NEW:
        if cython.cast(object, value) is not None:
            raise TypeError("can't send non-None value to a just-started coroutine")
        future = sending._start()
        if future is not None:
            Py_INCREF(future)
            result[0] = cython.cast(cython.pointer(PyObject), future)
            return PYGEN_RETURN
    elif sending._state == _DONE:
        raise RuntimeError("cannot reuse already awaited coroutine")
    status: cython.int = PyIter_Send(cython.cast(cython.pointer(PyObject), sending._rest), value, result)
    if status != PYGEN_NEXT:
        sending._end()
    return status


set_resume(_SendCoroutine, _resume_send)
take_code(SendPath.__dict__["send"], SendPath.__dict__["_described_send"])
