"""Records on their way from the threads that send them to the loop that delivers them.

A thread puts a record into the open chunk of its topic and goes on. The loop takes whole chunks, so that what passing
from thread to thread costs is paid per chunk. While the loop is behind, threads wait; they are let go when half of what
waits is gone, because two threads that take turns for every record would do little else.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

import trio

from triokafka.blocking.future import Outcome
from triokafka.blocking.producer.future import FutureRecordMetadata, RecordMetadata
from triokafka.errors import (
    ClosedError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    UnknownTopicOrPartitionError,
)
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    from triokafka import Deliveries, Delivery, Producer
    from triokafka.blocking.callbacks import CallbackThread
    from triokafka.loop_thread import LoopThread

logger = logging.getLogger(__name__)

Headers = list[tuple[str, bytes]]
Listening = list[FutureRecordMetadata]
"""Futures that somebody listens to."""

RECORD_OVERHEAD: Final = 82
"""Bytes that a record alone in a batch takes beside key, value and headers."""
_LARGEST_GROUP: Final = 64
_GATHERING_SECONDS: Final = 0.001
_OF_ONE_RECORD: Final = (TypeError, ValueError, MessageSizeTooLargeError, UnknownTopicOrPartitionError)


class Chunk:
    """Records of one topic that are handed over together, in columns, and afterwards their deliveries.

    Columns but ``values`` may be missing, or shorter than it is: then the rest is None.
    """

    __slots__ = (
        "_each",
        "_pieces",
        "header_sizes",
        "headers",
        "keys",
        "listening",
        "lock",
        "partitions",
        "size",
        "stage",
        "timestamps",
        "told",
        "values",
    )

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.lock = stage.staging.lock
        self.values: list[Any] = []
        self.keys: list[Any] | None = None
        self.partitions: list[int | None] | None = None
        self.timestamps: list[int | None] | None = None
        self.headers: list[Headers] | None = None
        self.header_sizes: list[int] | None = None
        self.size = 0
        self.listening: Listening = []
        self.told = 0
        """Records of which it is known whether they were accepted: the first ones."""
        self._pieces: list[Deliveries | Exception] = []
        self._each: list[Delivery | Exception] = []

    def put_key(self, index: int, key: bytes) -> None:
        """The key of the record at ``index``. The caller holds the lock."""
        keys = self.keys
        if keys is None:
            keys = self.keys = []
        if len(keys) != index:
            _padded(keys, index, None)
        keys.append(key)

    def extras(self, index: int, partition: int | None, timestamp_ms: int | None, headers: Headers | None) -> None:
        """What the record at ``index`` has beside key and value. The caller holds the lock."""
        if partition is not None:
            self.partitions = _put(self.partitions, index, partition, None)
        if timestamp_ms is not None:
            self.timestamps = _put(self.timestamps, index, timestamp_ms, None)
        if headers:
            self.headers = _put(self.headers, index, headers, [])
            size = sum(len(name.encode()) + len(content) for name, content in headers)
            self.header_sizes = _put(self.header_sizes, index, size, -1)

    def take(self) -> tuple[int, dict[str, Any]]:
        """The number of records, and the columns as `Producer.send_many` takes them; nothing is kept of them."""
        values, count = self.values, len(self.values)
        columns: dict[str, Any] = {"values": values}
        if self.keys is not None:
            columns["keys"] = _padded(self.keys, count, None)
        if self.partitions is not None:
            columns["partition"] = _padded(self.partitions, count, None)
        if self.timestamps is not None:
            columns["timestamp_ms"] = _padded(self.timestamps, count, None)
        if self.headers is not None:
            columns["headers"] = _padded(self.headers, count, [])
        self.values = []
        self.keys = self.partitions = self.timestamps = self.headers = None
        return count, columns

    # ---------------------------------------------------------------- what became of them

    def handed(self, piece: Deliveries | Exception) -> None:
        """The next records were accepted, or the next one was refused. In the loop."""
        self._pieces.append(piece)
        self.told += 1 if isinstance(piece, Exception) else len(piece)
        with self.lock:
            listening, self.listening = self.listening, []
        if listening:
            self._hear(listening)

    def delivery(self, index: int) -> Delivery | Exception | None:
        """Of one record: its delivery, why it was refused, or None as long as it was not handed over."""
        each = self._each
        if index >= len(each) and self._pieces:
            with self.lock:
                while self._pieces:
                    piece = self._pieces.pop(0)
                    if isinstance(piece, Exception):
                        each.append(piece)
                    else:
                        each.extend(piece)
        return each[index] if index < len(each) else None

    def outcome(self, index: int) -> Outcome | None:
        """Of one record, None as long as it is not settled. In any thread."""
        delivery = self.delivery(index)
        if delivery is None:
            return None
        if isinstance(delivery, Exception):
            return None, delivery
        try:
            topic, partition, *rest = delivery.result()[:6]
        except IllegalStateError:
            return None
        except Exception as error:
            return None, error
        offset, timestamp, key_size, value_size = rest
        place = self.stage.places.get(partition)
        if place is None:
            place = self.stage.places[partition] = TopicPartition(topic, partition)
        sizes = self.header_sizes
        header_size = sizes[index] if sizes is not None and index < len(sizes) else -1
        found = RecordMetadata(topic, partition, place, offset, timestamp, None, key_size, value_size, header_size)
        return found, None

    # ---------------------------------------------------------------- who wants to know

    @property
    def in_callback(self) -> bool:
        """Whether the caller is a callback of this producer."""
        return self.stage.staging.callbacks.is_current_thread

    def hurry(self) -> None:
        """Somebody waits for a record of this chunk."""
        self.stage.staging.loop.soon(self.stage.hurry)

    def attend(self, future: FutureRecordMetadata) -> None:
        """Tell the future when its record is settled. The caller holds the lock."""
        if future.index >= len(self._each) and not self._pieces:
            self.listening.append(future)
        else:
            self.stage.staging.loop.soon(self._hear, [future])

    def _hear(self, listening: Listening) -> None:
        """Have these futures settled when their records are: one call for several of a partition, which mostly went out
        and come back together. In the loop."""
        groups: dict[int, Listening] = {}
        each, last = self._each, len(self._each)
        for future in listening:
            index = future.index
            delivery = each[index] if index < last else self.delivery(index)
            if delivery is None:
                with self.lock:
                    self.listening.append(future)
            elif isinstance(delivery, Exception):
                self.stage.staging.callbacks.settle(self, [future])
            else:
                partition = delivery.partition
                group = groups.get(partition)
                if group is None:
                    group = groups[partition] = []
                group.append(future)
                if len(group) == _LARGEST_GROUP:
                    self._settle_with_last(groups.pop(partition))
        for group in groups.values():
            self._settle_with_last(group)

    def _settle_with_last(self, group: Listening) -> None:
        delivery = self.delivery(group[-1].index)
        assert delivery is not None
        assert not isinstance(delivery, Exception)
        delivery.add_callback(lambda metadata, error: self.stage.staging.callbacks.settle(self, group))

    def settle_unheard(self, future: FutureRecordMetadata) -> bool:
        """Settle a future that only threads wait for; False when somebody's function is to be called. In the loop."""
        outcome = self.outcome(future.index)
        with self.lock:
            # Under the lock: a callback that is added in this moment must not run in the loop.
            if outcome is None or future.has_callbacks:
                return False
            listeners = future.conclude(outcome)
        future.tell(listeners, outcome)
        return True

    def settle(self, group: Listening) -> None:
        """Settle these futures; those whose records went out later than the group's last are left for their time."""
        settled: list[tuple[FutureRecordMetadata, Outcome]] = []
        for future in group:
            outcome = self.outcome(future.index)
            if outcome is None:
                self.stage.staging.loop.soon(self._hear, [future])
            else:
                settled.append((future, outcome))
        # Once for all of them: the threads that send want this lock for every record.
        with self.lock:
            listeners = [future.conclude(outcome) for future, outcome in settled]
        for (future, outcome), told in zip(settled, listeners, strict=True):
            future.tell(told, outcome)


def _put(column: list[Any] | None, index: int, value: Any, fill: Any) -> list[Any]:
    column = _padded(column or [], index, fill)
    column.append(value)
    return column


def _padded(column: list[Any], count: int, fill: Any) -> list[Any]:
    del column[count:]
    if len(column) < count:
        column.extend([fill] * (count - len(column)))
    return column


class Stage:
    """One topic: the chunk that is being filled, and the task that hands chunks over, in order.

    ``partitions`` is the number of the topic's partitions, and ``known`` what is known of them, since ``learned_at``
    (monotonic seconds).
    """

    def __init__(self, staging: Staging, topic: str) -> None:
        self.staging = staging
        self.topic = topic
        self.partitions = 0
        self.known: Sequence[Any] = ()
        self.learned_at = float("-inf")
        self.places: dict[int, TopicPartition] = {}
        self.open: Chunk | None = None
        self._begun = trio.Event()
        self._hurried = trio.Event()
        self._idle = trio.Event()
        self._idle.set()

    def learned(self, partitions: Sequence[Any]) -> None:
        """This is what the topic's metadata says of its partitions."""
        self.partitions, self.known, self.learned_at = len(partitions), partitions, time.monotonic()

    def begin(self) -> Chunk:
        """A new open chunk. The caller holds the lock.

        Raises:
            IllegalStateError: the producer is closed, and nobody would take the chunk.
        """
        if self.staging.closed:
            raise IllegalStateError("KafkaProducer already closed!")
        chunk = self.open = Chunk(self)
        return chunk

    def wake(self) -> None:
        """There is a chunk. In the loop."""
        self._idle = trio.Event()
        self._begun.set()

    def hurry(self) -> None:
        """Do not wait for more records. In the loop."""
        self._hurried.set()

    async def wait_idle(self) -> None:
        """Wait until all that was staged is handed over. In the loop."""
        self.hurry()
        await self._idle.wait()

    async def run(self, producer: Producer) -> None:
        """Hand chunks over until cancelled."""
        staging = self.staging
        busy_until = 0.0
        while True:
            await self._begun.wait()
            if trio.current_time() < busy_until:
                # The sender is at it: what it sends in the next moment goes along.
                with trio.move_on_after(_GATHERING_SECONDS):
                    await self._hurried.wait()
            self._begun, self._hurried = trio.Event(), trio.Event()
            with staging.lock:
                chunk, self.open = self.open, None
            if chunk is not None:
                await self._hand_over(producer, chunk)
                staging.release(chunk.size)
                busy_until = trio.current_time() + 2 * _GATHERING_SECONDS
            if not self._begun.is_set():
                self._idle.set()

    async def _hand_over(self, producer: Producer, chunk: Chunk) -> None:
        count, columns = chunk.take()
        try:
            while (begin := chunk.told) < count:
                await self._send(producer, chunk, {name: column[begin:] for name, column in columns.items()})
        finally:
            # When cancelled: nobody may wait for these for ever.
            while chunk.told < count:
                chunk.handed(
                    ClosedError("the producer was closed while it took the record over; it may have been sent")
                )

    async def _send(self, producer: Producer, chunk: Chunk, columns: dict[str, Any]) -> None:
        """Have the SDK accept all of these records, or those before the first that it refuses, and note that one."""
        try:
            chunk.handed(await producer.send_many(self.topic, **columns))
        except Exception as error:
            accepted: Deliveries | None = getattr(error, "accepted", None)
            if accepted is not None and len(accepted):
                chunk.handed(accepted)
            chunk.handed(error)
            if accepted is None or not isinstance(error, _OF_ONE_RECORD):
                left = len(columns["values"]) - len(accepted or ()) - 1
                logger.warning("%d records for topic %s could not be sent: %s", left + 1, self.topic, error)
                for _ in range(left):
                    chunk.handed(error)


class Staging:
    """All stages of one producer, and the bound on what waits in them.

    ``stages`` are those that senders know. ``limit`` is bytes of records that were sent and not handed over; then
    `wait_for_room` waits.
    """

    def __init__(self, loop: LoopThread, callbacks: CallbackThread, limit: int) -> None:
        self.loop = loop
        self.callbacks = callbacks
        self.lock = threading.Lock()
        self.stages: dict[str, Stage] = {}
        self.limit = limit
        self.staged = 0
        self.closed = False
        self._room = threading.Condition(self.lock)

    def release(self, size: int) -> None:
        """So many bytes were handed over."""
        with self._room:
            before, self.staged = self.staged, self.staged - size
            if self.staged <= self.limit // 2 or before > self.limit >= self.staged:
                self._room.notify_all()

    def wait_for_room(self, timeout: float) -> None:
        """Wait until half of ``limit`` is free, at most ``timeout`` seconds. Called before a record is staged.

        Raises:
            KafkaTimeoutError: it was not.
            IllegalStateError: the producer was closed.
        """
        if self.loop.is_current_thread or self.callbacks.is_current_thread:
            return  # what it would wait for may be waiting for it
        with self._room:
            in_time = self._room.wait_for(lambda: self.closed or self.staged <= self.limit // 2, timeout)
            if self.closed:
                raise IllegalStateError("KafkaProducer already closed!")
            if not in_time:
                raise KafkaTimeoutError(
                    f"{self.staged} bytes of records wait to be taken over, and none was within {timeout:g} s"
                    " (max_block_ms): the brokers are too slow, or do not answer"
                )

    def close(self) -> None:
        """Take no more records than the open chunks. From any thread."""
        with self._room:
            self.closed = True
            self.stages.clear()
            self._room.notify_all()

    def fail(self, stages: Collection[Stage], error: KafkaError) -> None:
        """The producer has ended: all that was not handed over has failed. In the loop."""
        self.close()
        with self.lock:
            chunks = [stage.open for stage in stages if stage.open is not None]
            for stage in stages:
                stage.open = None
        for chunk in chunks:
            count, _ = chunk.take()
            for _ in range(count):
                chunk.handed(error)
            self.release(chunk.size)
