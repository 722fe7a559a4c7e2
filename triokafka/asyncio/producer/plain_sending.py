"""The path of a record from `send` into the open chunk, and its future, in plain Python. Twin of ``_sending``.

`triokafka.kernels` selects it when ``_sending`` is not compiled. Everything here runs in the asyncio loop, except
`Chunk.columns`, which the loop thread calls after the hand-over.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextvars import Context
from functools import partial
from typing import Any, Final

from triokafka.asyncio.structs import RecordMetadata
from triokafka.structs import TopicPartition

# RecordMetadata's own constructor is a Python function, which is slower.
_metadata: Final = partial(tuple.__new__, RecordMetadata)


class Acknowledged:
    """The outcome of consecutive records of a chunk, from index ``first`` on, that were written with one batch.

    With ``place`` None (``acks=0``) there is no metadata. ``offsets`` or ``timestamps`` are an integer if all records
    have the same value.
    """

    __slots__ = ("_first", "_offsets", "_place", "_stamped", "_timestamps")

    def __init__(
        self,
        place: TopicPartition | None,
        first: int,
        offsets: Sequence[int] | int,
        timestamps: Sequence[int] | int,
        stamped: int,
    ) -> None:
        self._place = place
        self._first = first
        self._offsets = offsets
        self._timestamps = timestamps
        self._stamped = stamped

    def metadata(self, index: int) -> RecordMetadata | None:
        """Return the metadata of the record at ``index`` of the chunk."""
        place = self._place
        if place is None:
            return None
        index -= self._first
        offsets, timestamps = self._offsets, self._timestamps
        offset = offsets if isinstance(offsets, int) else offsets[index]
        timestamp = timestamps if isinstance(timestamps, int) else timestamps[index]
        return _metadata((place[0], place[1], place, offset, timestamp, self._stamped, None))


class Chunk:
    """Records of one topic that cross to the loop thread together, in columns, and their outcomes.

    Every column except ``values`` may be None or shorter than ``values``; missing elements count as None. ``size`` is
    the sum of the records' bytes.
    """

    __slots__ = (
        "_dropped",
        "_failed",
        "_outcomes",
        "_waited_for",
        "acked",
        "headers",
        "keys",
        "loop",
        "partitions",
        "size",
        "timestamps",
        "topic",
        "values",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, topic: str, acked: bool) -> None:
        self.loop = loop
        self.topic = topic
        self.acked = acked
        self.values: list[Any] = []
        self.keys: list[Any] | None = None
        self.partitions: list[int | None] | None = None
        self.timestamps: list[int | None] | None = None
        self.headers: list[Any] | None = None
        self.size = 0
        self._outcomes: list[Any] = []
        self._waited_for: dict[int, asyncio.Future[Any]] = {}
        self._failed = False
        self._dropped = False

    def append(
        self, value: Any, key: Any, partition: int | None, timestamp_ms: int | None, headers: Any, size: int
    ) -> SendFuture:
        """Add a record of ``size`` bytes, and return its future."""
        index = len(self.values)
        self.values.append(value)
        if key is not None:
            self.keys = _put(self.keys, index, key)
        if partition is not None:
            self.partitions = _put(self.partitions, index, partition)
        if timestamp_ms is not None:
            self.timestamps = _put(self.timestamps, index, timestamp_ms)
        if headers:
            self.headers = _put(self.headers, index, headers)
        self.size += size
        return SendFuture(self, index)

    def columns(self) -> dict[str, Any]:
        """Return the arguments of `Producer.send_many`; the chunk drops the columns."""
        count = len(self.values)
        columns: dict[str, Any] = {"values": self.values}
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

    def settle(self, first: int, end: int, outcome: Any) -> None:
        """Give the records from ``first`` to before ``end`` an outcome: `Acknowledged`, `RecordMetadata`, an error."""
        outcomes = self._outcomes
        if len(outcomes) < end:
            outcomes.extend([None] * (end - len(outcomes)))
        outcomes[first:end] = [outcome] * (end - first)
        if isinstance(outcome, Exception):
            self._failed = True
            if self._dropped:
                self._report(first)
        if self._waited_for:
            for index in range(first, end):
                future = self._waited_for.pop(index, None)
                if future is not None:
                    self._give(future, index)

    def forget(self) -> None:
        """Do not report the failures of futures that were dropped so far."""
        self._dropped = False

    def _outcome(self, index: int) -> Any:
        return self._outcomes[index] if index < len(self._outcomes) else None

    def _value(self, index: int) -> Any:
        """Return a settled record's metadata, or raise its error."""
        outcome = self._outcomes[index]
        if isinstance(outcome, Acknowledged):
            return outcome.metadata(index)
        if isinstance(outcome, Exception):
            raise copy.copy(outcome)
        return outcome

    def _future(self, index: int) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self.loop.create_future()
        if self._outcome(index) is None:
            self._waited_for[index] = future
        else:
            self._give(future, index)
        return future

    def _give(self, future: asyncio.Future[Any], index: int) -> None:
        if future.done():
            return
        try:
            value = self._value(index)
        except Exception as error:
            future.set_exception(error.with_traceback(None))
        else:
            future.set_result(value)

    def _report(self, index: int) -> None:
        """Report an unobserved failure to the loop's exception handler, as `asyncio.Future` does."""
        outcome = self._outcome(index)
        if isinstance(outcome, Exception) and not self.loop.is_closed():
            self.loop.call_exception_handler(
                {"message": "SendFuture exception was never retrieved", "exception": copy.copy(outcome)}
            )


class SendFuture:
    """The outcome of one record: an `asyncio.Future` for awaiting, `asyncio.wait`, `asyncio.gather` and callbacks.

    Its result is the `RecordMetadata`. The real future is made when something must wait for it; the outcomes of all
    records of a batch are set at once.
    """

    __slots__ = ("__weakref__", "_chunk", "_future", "_index", "_seen")

    def __init__(self, chunk: Chunk, index: int) -> None:
        self._chunk = chunk
        self._index = index
        self._future: asyncio.Future[Any] | None = None
        self._seen = False

    def __del__(self) -> None:
        if self._future is None and not self._seen:
            if self._chunk._outcome(self._index) is None:
                self._chunk._dropped = True
            elif self._chunk._failed:
                self._chunk._report(self._index)

    @property  # type: ignore[misc] # `object` has it writable
    def __class__(self) -> Any:
        """`asyncio.Future`, for programs that ask with `isinstance`."""
        return asyncio.Future

    def _real(self) -> asyncio.Future[Any]:
        if self._future is None:
            self._future = self._chunk._future(self._index)
        return self._future

    def done(self) -> bool:
        """Whether the record is acknowledged or has failed, or the future was cancelled."""
        if self._future is not None:
            return self._future.done()
        return self._chunk._outcome(self._index) is not None

    def result(self) -> RecordMetadata | None:
        """Return the metadata, or raise the error. Raises `InvalidStateError` before."""
        if self._future is not None or not self.done():
            found: RecordMetadata | None = self._real().result()
            return found
        self._seen = True
        return self._chunk._value(self._index)  # type: ignore[no-any-return]

    def __await__(self) -> Generator[Any, Any, RecordMetadata | None]:
        if self._future is None and self.done():
            return self.result()
        found: RecordMetadata | None = yield from self._real().__await__()
        return found

    __iter__ = __await__

    def exception(self) -> BaseException | None:
        """Return the error, or None. Raises `InvalidStateError` before."""
        return self._real().exception()

    def cancelled(self) -> bool:
        """Whether the future was cancelled."""
        return self._future is not None and self._future.cancelled()

    def cancel(self, msg: Any = None) -> bool:
        """Cancel the future, not the record. Return False if it is done."""
        return self._real().cancel(msg)

    def add_done_callback(self, fn: Callable[[Any], object], *, context: Context | None = None) -> None:
        """Call ``fn`` with this future from the loop, when it is done."""
        self._real().add_done_callback(_Callback(fn, self), context=context)

    def remove_done_callback(self, fn: Callable[[Any], object]) -> int:
        """Remove a callback; return how many times it was there."""
        return self._real().remove_done_callback(_Callback(fn, self))

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the future's loop."""
        return self._chunk.loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real(), name)  # asyncio's own functions use private attributes, too

    @property
    def _asyncio_future_blocking(self) -> bool:
        return self._real()._asyncio_future_blocking

    @_asyncio_future_blocking.setter
    def _asyncio_future_blocking(self, value: bool) -> None:
        self._real()._asyncio_future_blocking = value

    def __repr__(self) -> str:
        return f"<SendFuture of {self._chunk.topic} {'done' if self.done() else 'pending'}>"


class _Callback:
    """A callback that gets the `SendFuture`; equal to others of the same two."""

    __slots__ = ("_function", "_future")

    def __init__(self, function: Callable[[Any], object], future: SendFuture) -> None:
        self._function = function
        self._future = future

    def __call__(self, real: asyncio.Future[Any]) -> object:
        return self._function(self._future)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Callback) and (self._function, self._future) == (other._function, other._future)

    def __hash__(self) -> int:
        return hash(self._function)


class Topic:
    """A topic as the fast path knows it: the number of partitions, and the chunk that is being filled."""

    __slots__ = ("chunk", "count")

    def __init__(self) -> None:
        self.chunk: Chunk | None = None
        self.count = 0


class SendMethod:
    """The descriptor of `AIOKafkaProducer.send`: for an object its ``_send``, for the class the function."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self._function if instance is None else instance._send

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Call the function. With ``__func__``, `unittest.mock` takes this for an asynchronous method."""
        return self._function(*arguments, **options)

    @property
    def __func__(self) -> Callable[..., Any]:
        return self._function


class SendPath:
    """Puts records into open chunks; anything unusual takes ``slow_path``, which has the arguments of `send`.

    A chunk takes at most ``most_records``, and no further record once it has ``most_bytes``. While ``enabled`` is False
    all records take the slow path. ``overhead`` is what a record costs besides key and value, in bytes.
    """

    __slots__ = ("_most_bytes", "_most_records", "_overhead", "_slow_path", "_topics", "enabled")

    def __init__(
        self,
        topics: dict[str, Any],
        slow_path: Callable[..., Coroutine[Any, Any, Any]],
        overhead: int,
        most_records: int,
        most_bytes: int,
    ) -> None:
        self._topics = topics
        self._slow_path = slow_path
        self._overhead = overhead
        self._most_records = most_records
        self._most_bytes = most_bytes
        self.enabled = False

    async def send(
        self,
        topic: Any,
        value: Any = None,
        key: Any = None,
        partition: Any = None,
        timestamp_ms: Any = None,
        headers: Any = None,
    ) -> Any:
        """Send one record; `AIOKafkaProducer.send` has the contract."""
        future = self.append(topic, value, key, partition) if timestamp_ms is None and not headers else None
        if future is not None:
            return future
        return await self._slow_path(topic, value, key, partition, timestamp_ms, headers)

    def append(self, topic: Any, value: Any, key: Any, partition: Any) -> SendFuture | None:
        """Return the future, or None without any effect if the record must take the slow path."""
        known = self._topics.get(topic) if self.enabled and type(topic) is str else None
        if known is None or known.chunk is None:
            return None
        if type(value) is not bytes or (key is not None and type(key) is not bytes):
            return None
        if partition is not None and (type(partition) is not int or not 0 <= partition < known.count):
            return None
        chunk: Chunk = known.chunk
        size = self._overhead + len(value) + (0 if key is None else len(key))
        if len(chunk.values) >= self._most_records or chunk.size + size > self._most_bytes:
            return None
        return chunk.append(value, key, partition, None, None, size)


def _put(column: list[Any] | None, index: int, value: Any) -> list[Any]:
    column = _padded([] if column is None else column, index)
    column.append(value)
    return column


def _padded(column: list[Any], count: int) -> list[Any]:
    if len(column) < count:
        column.extend([None] * (count - len(column)))
    return column
