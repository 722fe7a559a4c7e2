"""Sends many records in one call: lists and Arrow columns into batches.

The kernel appends as many records as fit into open batches, so that no Python code runs per record. Producers with
serializers, interceptors, a partitioner or a callback need each record as an object, and send them one by one.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Coroutine
from typing import Any, Final

from triokafka.client.config import ProducerOptions
from triokafka.client.deliveries import DeliveredColumns, Deliveries, Delivery
from triokafka.client.producer.batch import DeliveryCallback, ProducerBatch
from triokafka.client.producer.batch_opener import BatchOpener
from triokafka.client.producer.columns import Columns
from triokafka.client.producer.interceptors import ProducerRecord
from triokafka.client.producer.partition_queue import PartitionQueue
from triokafka.client.producer.record_serializer import RecordSerializer
from triokafka.client.producer.topic_state import TopicState
from triokafka.client.producer.topic_states import TopicStates
from triokafka.errors import MessageSizeTooLargeError, SerializationError, UnknownTopicOrPartitionError
from triokafka.records.kernel import RecordAppender, RecordColumns

_OF_ONE_RECORD: Final = (
    TypeError,
    ValueError,
    SerializationError,
    MessageSizeTooLargeError,
    UnknownTopicOrPartitionError,
)


_UNCHANGING: Final = frozenset({bytes, type(None)})


class BulkSender:
    """`Producer.send_many` of one producer.

    ``now`` and ``wall_ms`` are the world's clocks; ``check_usable`` raises when the producer is closed or has failed.
    """

    def __init__(
        self,
        options: ProducerOptions,
        topics: TopicStates,
        serializer: RecordSerializer,
        opener: BatchOpener,
        *,
        now: Callable[[], float],
        wall_ms: Callable[[], int],
        check_usable: Callable[[], None],
    ) -> None:
        self.topics = topics
        self.serializer = serializer
        self.opener = opener
        self.now = now
        self.wall_ms = wall_ms
        self._check_usable = check_usable
        self._ignores_keys = options.partitioner_ignore_keys
        self._needs_objects = bool(
            options.interceptors
            or options.partitioner
            or options.on_delivery
            or options.key_serializer
            or options.value_serializer
        )

    async def send(
        self,
        topic: str,
        values: Any,
        keys: Any,
        partition: Any,
        timestamp_ms: Any,
        headers: Any,
        on_delivery: DeliveryCallback | None,
        send_one: Callable[..., Coroutine[Any, Any, Delivery]],
    ) -> Deliveries:
        """Send all records; ``send_one`` is `Producer.send`, for producers that need each record as an object."""
        self._check_usable()
        as_objects = bool(self._needs_objects or on_delivery)
        columns = Columns(values, keys, partition, timestamp_ms, headers, wall_ms=self.wall_ms, as_objects=as_objects)
        if as_objects:
            return await _one_by_one(send_one, topic, columns, on_delivery)
        self._check_common(topic, columns)
        known = self.topics.find(topic, columns.partition)
        if known is None:
            known = await self.topics.learn(topic, columns.partition, self.opener.give_up_at())
        bulk = _Bulk(self, topic, columns, known, self._spreads(columns))
        try:
            while not bulk.fill():
                await bulk.make_way()
        except Exception as error:
            raise bulk.explained(error) from error.__cause__
        return bulk.deliveries

    def send_nowait(
        self, topic: str, values: Any, keys: Any, partition: Any, timestamp_ms: Any, headers: Any
    ) -> Deliveries:
        """Send the records before the first one that needs a wait or another check; see `Producer.send_many_nowait`."""
        self._check_usable()
        if self._needs_objects:
            return Deliveries()
        columns = Columns(values, keys, partition, timestamp_ms, headers, wall_ms=self.wall_ms, as_objects=False)
        self._check_common(topic, columns)
        known = self.topics.known_now(topic, columns.partition)
        bulk = _Bulk(self, topic, columns, known, self._spreads(columns), may_yield=False)
        try:
            bulk.fill()
        except Exception as error:
            raise bulk.explained(error) from error.__cause__
        return bulk.deliveries

    def _check_common(self, topic: str, columns: Columns) -> None:
        """Raise for arguments with which no record can be sent."""
        if columns.timestamp is not None or columns.same_headers != ():
            same = ProducerRecord(topic, headers=columns.same_headers, timestamp_ms=columns.timestamp)
            same = self.serializer.prepared(same)
            self.serializer.serialize(same)
            columns.same_headers = same.headers

    def _spreads(self, columns: Columns) -> bool:
        """Return whether each record has its own partition."""
        by_key = columns.keys is not None and not self._ignores_keys
        return columns.partition is None and (columns.partitions is not None or by_key)


async def _one_by_one(
    send_one: Callable[..., Coroutine[Any, Any, Delivery]],
    topic: str,
    columns: Columns,
    on_delivery: DeliveryCallback | None,
) -> Deliveries:
    deliveries = Deliveries()
    for position in range(len(columns)):
        try:
            record = columns.record(topic, position)
            delivery = await send_one(
                topic,
                record.value,
                key=record.key,
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
                headers=record.headers,
                on_delivery=on_delivery,
            )
        except Exception as error:
            raise _with_number(error, position, len(columns)) from error.__cause__
        deliveries.add_one(delivery)
    return deliveries


class _Bulk:
    """One call. ``position`` is the first record that is in no batch yet. With ``spread`` each record has its own
    partition; without it all records go to one partition, or to the sticky ones."""

    def __init__(
        self,
        sender: BulkSender,
        topic: str,
        columns: Columns,
        known: TopicState,
        spread: bool,
        *,
        may_yield: bool = True,
    ) -> None:
        self._may_yield = may_yield
        self.position = 0
        # The kernel fills these columns with the properties of each record, for its delivery.
        count = len(columns)
        self._key_sizes = None if columns.keys is None else array("i", [-1]) * count
        self._value_sizes = array("i", [-1]) * count
        self._partitions: array[int] | None = None
        if spread:
            self._partitions = columns.partitions if columns.partitions is not None else array("q", [-1]) * count
            self._batches: list[ProducerBatch | None] = []
            self._appenders: list[RecordAppender | None] = []
        self.deliveries = Deliveries(
            DeliveredColumns(self._partitions, columns.timestamps, self._key_sizes, self._value_sizes)
        )
        self._sender = sender
        self._topic = topic
        self._columns = columns
        self._known = known
        self._records: RecordColumns | None = None
        self._queue = known.queues[0] if spread else known.queue_for(columns.partition, None, None)
        self._has_failed = False

    def fill(self) -> bool:
        """Append records to batches. Return False before the end if the next one needs `make_way`."""
        records = self._records
        if records is None:
            records = self._records = self._columns.records(self._key_sizes, self._value_sizes)
        if self._partitions is None:
            return self._fill_one(records)
        return self._fill_many(records, self._partitions)

    async def make_way(self) -> None:
        """Wait until there is a batch for the next record, or send it by itself if the kernel failed on it."""
        if self._has_failed:
            self._has_failed = False
            if self._partitions is None:
                await self._send_alone()
                self._queue = self._known.queue_for(self._columns.partition, None, None)
            else:
                position = self.position
                self._partitions[position] = await self._send_alone(self._partitions[position])
            return
        queue = self._queue
        if self._partitions is None:
            queue.close_open()
            if self._columns.partition is None:
                queue = self._queue = self._known.queues[self._known.switch_if_due()]
            if queue.open is not None:
                return
        await self._open_batch(queue)
        if self._partitions is not None and queue.open is not None:
            self._use(queue.topic_partition.partition, queue.open)

    def explained(self, error: Exception) -> Exception:
        """Return the error for the caller: with the number of its record, and the deliveries of those before it."""
        again = _with_number(error, self.position, len(self._columns))
        again.accepted = self.deliveries  # type: ignore[attr-defined]
        return again

    def _fill_one(self, records: RecordColumns) -> bool:
        count = len(self._columns)
        known = self._known if self._columns.partition is None else None
        while self.position < count:
            queue = self._queue
            batch = queue.open
            if batch is not None and batch.builder is not None:
                builder = batch.builder
                timestamp = self._timestamp()
                first = builder.count
                try:
                    records.append_to(builder, self.position, timestamp)
                except Exception:
                    self._has_failed = True  # `_send_alone` raises the reason
                added = builder.count - first
                if added:
                    self._note(batch, first, added, timestamp)
                if self._has_failed:
                    return False
                if self.position == count:
                    return True
            following = self._next_queue(queue, known)
            if following is None:
                return False
            self._queue = following
        return True

    def _fill_many(self, records: RecordColumns, partitions: array[int]) -> bool:
        """Append each record to its own partition, to that of its key, or (without either) to the sticky one."""
        known, count = self._known, len(self._columns)
        batches, appenders = self._batches, self._appenders
        while self.position < count:
            missing = len(known.queues) - len(batches)
            batches += [None] * missing
            appenders += [None] * missing
            timestamp = self._timestamp()
            try:
                records.append_among(appenders, partitions, self.position, timestamp, known.sticky)
            except Exception:
                self._has_failed = True  # `_send_alone` raises the reason
            for partition, first in records.touched:
                batch = batches[partition]
                assert batch is not None, "the kernel appends only to open batches"
                self._note(batch, first, batch.count - first, timestamp)
            if self._has_failed:
                return False
            if self.position < count:
                place = records.place(self.position, partitions, len(batches), known.sticky)
                if not self._find_batch(place, is_given=partitions[self.position] >= 0):
                    return False
        return True

    def _find_batch(self, place: int, *, is_given: bool) -> bool:
        """Find a batch for the next record, or let the kernel choose another place. Return False if it must wait."""
        queue, full = self._known.queues[place], self._batches[place]
        batch = queue.open
        if batch is not None and batch is not full and batch.builder is not None:
            self._use(place, batch)  # another task has opened it
            return True
        queue.close_open()
        if not is_given and place == self._known.sticky and place != self._known.switch_if_due():
            return True
        self._queue = queue
        if self._next_queue(queue, None) is None:
            return False
        if queue.open is not None:
            self._use(place, queue.open)
        return True

    def _use(self, place: int, batch: ProducerBatch) -> None:
        self._batches[place], self._appenders[place] = batch, batch.builder

    def _next_queue(self, full: PartitionQueue, known: TopicState | None) -> PartitionQueue | None:
        """Do as `BatchOpener.next_queue` for the next record. None if the record needs `make_way`."""
        columns, position = self._columns, self.position
        key = None if columns.keys is None else columns.keys[position]
        value = columns.values[position]
        if columns.headers is not None or type(key) not in _UNCHANGING or type(value) not in _UNCHANGING:
            return None
        return self._sender.opener.next_queue(full, known, key, value, columns.same_headers, may_yield=self._may_yield)

    async def _open_batch(self, queue: PartitionQueue) -> None:
        """Open a batch for the next record."""
        columns, position = self._columns, self.position
        key = None if columns.keys is None else columns.keys[position]
        value = columns.values[position]
        headers: Any = columns.same_headers
        if columns.headers is not None or type(key) not in _UNCHANGING or type(value) not in _UNCHANGING:
            record = self._sender.serializer.prepared(columns.record(self._topic, position))
            _, key, value = self._sender.serializer.serialize(record)
            headers = record.headers
        await self._sender.opener.open_batch(queue, self._sender.opener.record_bytes(queue, key, value, headers))

    async def _send_alone(self, given: int = -1) -> int:
        """Send the next record, on which the kernel failed, as `Producer.send` does; raise the same errors.

        Returns its partition.
        """
        known = self._known
        give_up_at = self._sender.opener.give_up_at()
        record = self._columns.record(self._topic, self.position)
        if given >= len(known.queues):
            known = await self._sender.topics.learn(self._topic, given, give_up_at)
        record = self._sender.serializer.prepared(record)
        timestamp, key, value = self._sender.serializer.serialize(record)
        partition = record.partition
        while True:
            queue = known.queue_for(partition, key, value)
            batch = queue.open
            if batch is not None:
                index = batch.append(timestamp, key, value, record.headers)
                if index >= 0:
                    self._value_sizes[self.position] = -1 if value is None else len(value)
                    if self._key_sizes is not None:
                        self._key_sizes[self.position] = -1 if key is None else len(key)
                    self._note(batch, index, 1, timestamp)
                    return queue.topic_partition.partition
                queue.close_open()
                queue = known.queue_for(partition, key, value)
                if queue.open is not None:
                    continue
            size = self._sender.opener.record_bytes(queue, key, value, record.headers)
            await self._sender.opener.open_batch(queue, size, give_up_at)

    def _timestamp(self) -> int:
        return self._sender.wall_ms() if self._columns.timestamp is None else self._columns.timestamp

    def _note(self, batch: ProducerBatch, first: int, added: int, timestamp: int) -> None:
        # The record that opened a batch is as old as the batch.
        self.deliveries.add(batch, first, added, timestamp, self._sender.now() - batch.created_at if first else 0.0)
        self.position += added


def _with_number(error: Exception, position: int, count: int) -> Exception:
    """Return the error with the number of its record, and a note on how many records were accepted."""
    if type(error) in _OF_ONE_RECORD:
        again = type(error)(f"record {position} of {count}: {error}")
        again.__traceback__ = error.__traceback__
        error = again
    error.add_note(f"send_many accepted {position} of {count} records: those before number {position}, counted from 0")
    return error
