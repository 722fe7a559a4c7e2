"""The fast path of a record, from `send` into the open batch, in plain Python. Twin and oracle of ``_fast_path``.

It has the interface of ``_fast_path`` and returns equal results; ``triokafka.kernels`` selects it when that module is
not compiled. Nothing here waits or raises errors about the record: the slow path does both.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from triokafka.errors import IllegalStateError
from triokafka.records.plain_from_columns import murmur2
from triokafka.structs import RecordMetadata

if TYPE_CHECKING:
    from triokafka.client.producer.batch import DeliveryCallback, ProducerBatch

CHEAP_TO_AWAIT: Final = False
"""Whether the coroutines of `FastPath.send` and `BoundFastPath.send` are cheaper than Python's own.

On CPython 3.11 the compiled ones are cheaper, because it gets their result without an exception; later versions do not.
"""

_CREATE_TIME: Final = -1
_LARGEST_REMEMBERED_KEY: Final = 64
_BUFFERS: Final = frozenset({bytes, bytearray, memoryview})
_UNCHANGING: Final = frozenset({bytes, type(None)})


_remembered_hash = lru_cache(maxsize=16_384)(murmur2)  # real streams repeat their keys


class Delivery:
    """The outcome of one record. Await it, as often and from as many tasks as you like, for its `RecordMetadata`.

    Awaiting raises the error of a failed record, and does not yield to other tasks when the record is settled already.
    Cancelling the wait does not recall the record. Leaving the producer's block raises a failure that was never
    awaited and had no callback.
    """

    __slots__ = ("_age", "_batch", "_index", "_key_size", "_timestamp", "_value_size")

    def __init__(
        self, batch: ProducerBatch, index: int, timestamp: int, key_size: int, value_size: int, age: float = 0.0
    ) -> None:
        # ``age`` is the batch's age in seconds at the time the record was appended.
        self._batch = batch
        self._index = index
        self._timestamp = timestamp
        self._key_size = key_size
        self._value_size = value_size
        self._age = age

    @property
    def topic(self) -> str:
        """The topic that the record was sent to."""
        return self._batch.topic_partition.topic

    @property
    def partition(self) -> int:
        """The partition that the record was sent to."""
        return self._batch.topic_partition.partition

    @property
    def done(self) -> bool:
        """Whether the record is acknowledged or has failed."""
        return self._batch.piece_for(self._index)[0].done

    def result(self) -> RecordMetadata:
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

    def _settled(self, batch: ProducerBatch, index: int) -> RecordMetadata:
        error = batch.error_to_raise(index)
        if error is not None:
            raise error
        return self.metadata_in(batch, index)

    def metadata_in(self, batch: ProducerBatch, index: int) -> RecordMetadata:
        """Return the metadata of the record at ``index`` of an acknowledged batch."""
        base = batch.base_offset
        log_append_time = batch.log_append_time
        return RecordMetadata(
            batch.topic_partition.topic,
            batch.topic_partition.partition,
            base + index if base >= 0 else -1,
            self._timestamp if log_append_time == _CREATE_TIME else log_append_time,
            self._key_size,
            self._value_size,
            batch.attempts,
            max(0.0, batch.settled_at - batch.created_at - self._age) * 1000,
        )

    async def _wait(self) -> RecordMetadata:
        while True:
            batch, index = self._batch.piece_for(self._index)
            if batch.done:
                return self._settled(batch, index)
            await batch.wait()

    def __await__(self) -> Generator[Any, Any, RecordMetadata]:
        return self._wait().__await__()

    def add_callback(self, callback: DeliveryCallback) -> None:
        """Call ``callback`` when the record is settled, in a background task of the producer; or now, if it is settled.

        It must not block; its errors are logged. Callbacks of one partition run in the order of their records.
        """
        self._batch.add_callback(self, self._index, callback)

    def place(self) -> tuple[ProducerBatch, int, int, int, float]:
        """Return the arguments of `Deliveries.add` for this record."""
        return self._batch, self._index, 1, self._timestamp, self._age

    def __repr__(self) -> str:
        return f"<Delivery {self.topic}-{self.partition} {'settled' if self.done else 'on its way'}>"


def _with_callback(delivery: Delivery | None, on_delivery: Any) -> Delivery | None:
    """Add the callback to the delivery, if neither is None; return the delivery."""
    if on_delivery is not None and delivery is not None:
        delivery.add_callback(on_delivery)
    return delivery


class QueueTail:
    """The end of a partition's queue: the batch that is ``open`` for records, or None."""

    __slots__ = ("open",)

    open: ProducerBatch | None

    def __init__(self) -> None:
        self.open = None


class TopicQueues:
    """The queues of a topic by partition number, and the ``sticky`` partition, for records without key."""

    __slots__ = ("queues", "sticky")

    queues: list[Any]
    sticky: int

    def __init__(self) -> None:
        self.queues = []
        self.sticky = -1


class FastPath:
    """Puts records into open batches; anything unusual takes the slow path.

    ``topics`` are the known topics by name. ``wall_ms`` and ``now`` are the world's clocks; with ``system_clock`` they
    are this machine's, which the compiled twin reads itself. ``enabled`` is False for producers with plug-ins such as
    serializers, whose records always take the slow path. ``next_queue`` is `BatchOpener.next_queue`, called when an
    open batch has no room for a record. ``slow_path`` and ``slow_path_now`` take the arguments of `send` and
    `send_nowait` by position.
    """

    __slots__ = ("_enabled", "_next_queue", "_now", "_slow_path", "_slow_path_now", "_topics", "_wall_ms")

    def __init__(
        self,
        topics: Mapping[str, TopicQueues],
        wall_ms: Callable[[], int],
        now: Callable[[], float],
        system_clock: bool,
        enabled: bool,
        next_queue: Callable[..., Any],
        slow_path: Callable[..., Coroutine[Any, Any, Delivery]],
        slow_path_now: Callable[..., Delivery],
    ) -> None:
        self._topics = topics
        self._wall_ms = wall_ms
        self._now = now
        self._enabled = enabled
        self._next_queue = next_queue
        self._slow_path = slow_path
        self._slow_path_now = slow_path_now

    def append(
        self, topic: Any, value: Any, key: Any, partition: Any, timestamp_ms: Any, headers: Any, on_delivery: Any
    ) -> Delivery | None:
        """Return the delivery, or None without any effect when the record must take the slow path."""
        if not self._accepts(timestamp_ms, headers, on_delivery):
            return None
        known = self._topics.get(topic) if type(topic) is str else None
        if known is None:
            return None
        if partition is not None:
            if type(partition) is not int:
                return None
            number = partition
        elif key is None:
            number = known.sticky
        elif type(key) is bytes:
            hashed = _remembered_hash(key) if len(key) <= _LARGEST_REMEMBERED_KEY else murmur2(key)
            number = (hashed & 0x7FFFFFFF) % len(known.queues)
        else:
            return None
        if not 0 <= number < len(known.queues):
            return None
        is_sticky = partition is None and key is None
        return _with_callback(self._put(known.queues[number], known if is_sticky else None, value, key), on_delivery)

    def _accepts(self, timestamp_ms: Any, headers: Any, on_delivery: Any) -> bool:
        """Whether a record with these arguments may take the fast path."""
        if not self._enabled or timestamp_ms is not None or headers:
            return False
        return on_delivery is None or callable(on_delivery)

    async def send(
        self,
        topic: Any,
        value: Any = None,
        *,
        key: Any = None,
        partition: Any = None,
        timestamp_ms: Any = None,
        headers: Any = (),
        on_delivery: Any = None,
    ) -> Delivery:
        """Send one record; `Producer.send` has the contract."""
        delivery = self.append(topic, value, key, partition, timestamp_ms, headers, on_delivery)
        if delivery is not None:
            return delivery
        return await self._slow_path(topic, value, key, partition, timestamp_ms, headers, on_delivery)

    def send_nowait(
        self,
        topic: Any,
        value: Any = None,
        *,
        key: Any = None,
        partition: Any = None,
        timestamp_ms: Any = None,
        headers: Any = (),
        on_delivery: Any = None,
    ) -> Delivery:
        """Send one record without waiting; `Producer.send_nowait` has the contract."""
        delivery = self.append(topic, value, key, partition, timestamp_ms, headers, on_delivery)
        if delivery is not None:
            return delivery
        return self._slow_path_now(topic, value, key, partition, timestamp_ms, headers, on_delivery)

    def _put(self, end: QueueTail, known: TopicQueues | None, value: Any, key: Any) -> Delivery | None:
        key_size = value_size = -1
        if key is not None:
            if type(key) not in _BUFFERS:
                return None
            key_size = len(key) if type(key) is not memoryview else key.nbytes
        if value is not None:
            if type(value) not in _BUFFERS:
                return None
            value_size = len(value) if type(value) is not memoryview else value.nbytes
        batch = end.open
        if batch is not None:
            timestamp = self._wall_ms()
            try:
                index = batch.append(timestamp, key, value)
            except BufferError:
                return None
            if index >= 0:
                return Delivery(batch, index, timestamp, key_size, value_size, self._now() - batch.created_at)
        if type(key) not in _UNCHANGING or type(value) not in _UNCHANGING:
            return None
        following = self._next_queue(end, known, key, value, ())
        return None if following is None else self._put(following, known, value, key)


class BoundFastPath:
    """A `FastPath` to one partition."""

    __slots__ = ("_end", "_path")

    def __init__(self, path: FastPath, end: Any) -> None:
        self._path = path
        self._end = end

    def append(self, value: Any, key: Any, timestamp_ms: Any, headers: Any, on_delivery: Any) -> Delivery | None:
        """As `FastPath.append`."""
        if not self._path._accepts(timestamp_ms, headers, on_delivery):
            return None
        return _with_callback(self._path._put(self._end, None, value, key), on_delivery)

    async def send(
        self,
        value: Any = None,
        *,
        key: Any = None,
        timestamp_ms: Any = None,
        headers: Any = (),
        on_delivery: Any = None,
    ) -> Delivery:
        """Send to the bound partition, as `Producer.send`."""
        delivery = self.append(value, key, timestamp_ms, headers, on_delivery)
        if delivery is not None:
            return delivery
        topic, partition = self._end.topic_partition
        return await self._path._slow_path(topic, value, key, partition, timestamp_ms, headers, on_delivery)

    def send_nowait(
        self,
        value: Any = None,
        *,
        key: Any = None,
        timestamp_ms: Any = None,
        headers: Any = (),
        on_delivery: Any = None,
    ) -> Delivery:
        """Send to the bound partition, as `Producer.send_nowait`."""
        delivery = self.append(value, key, timestamp_ms, headers, on_delivery)
        if delivery is not None:
            return delivery
        topic, partition = self._end.topic_partition
        return self._path._slow_path_now(topic, value, key, partition, timestamp_ms, headers, on_delivery)
