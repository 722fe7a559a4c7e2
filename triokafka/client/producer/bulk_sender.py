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
        if columns.timestamp is not None or columns.same_headers != ():
            same = ProducerRecord(topic, headers=columns.same_headers, timestamp_ms=columns.timestamp)
            same = self.serializer.prepared(same)
            self.serializer.serialize(same)  # raises for arguments with which no record can be sent
            columns.same_headers = same.headers
        known = await self.topics.learn(topic, columns.partition, self.opener.give_up_at())
        by_key = keys is not None and not self._ignores_keys
        spread = columns.partition is None and (columns.partitions is not None or by_key)
        bulk = _Bulk(self, topic, columns, known, spread)
        try:
            await bulk.run()
        except Exception as error:
            again = _with_number(error, bulk.position, len(columns))
            again.accepted = bulk.deliveries  # type: ignore[attr-defined]
            raise again from error.__cause__
        return bulk.deliveries


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

    def __init__(self, sender: BulkSender, topic: str, columns: Columns, known: TopicState, spread: bool) -> None:
        self.position = 0
        # The kernel fills these columns with the properties of each record, for its delivery.
        count = len(columns)
        self._key_sizes = None if columns.keys is None else array("i", [-1]) * count
        self._value_sizes = array("i", [-1]) * count
        self._partitions: array[int] | None = None
        if spread:
            self._partitions = columns.partitions if columns.partitions is not None else array("q", [-1]) * count
        self.deliveries = Deliveries(
            DeliveredColumns(self._partitions, columns.timestamps, self._key_sizes, self._value_sizes)
        )
        self._topic = topic
        self._columns = columns
        self._known = known
        self._topics = sender.topics
        self._serializer = sender.serializer
        self._opener = sender.opener
        self._wall_ms = sender.wall_ms
        self._now = sender.now

    async def run(self) -> None:
        """Send all."""
        records = self._columns.records(self._key_sizes, self._value_sizes)
        if self._partitions is None:
            await self._to_one_queue(records)
        else:
            await self._to_many_queues(records, self._partitions)

    async def _to_one_queue(self, records: RecordColumns) -> None:
        known, partition = self._known, self._columns.partition
        count = len(self._columns)
        queue = known.queue_for(partition, None, None)
        while self.position < count:
            batch = queue.open
            if batch is not None and batch.builder is not None:
                builder = batch.builder
                timestamp = self._timestamp()
                first = builder.count
                failed = False
                try:
                    records.append_to(builder, self.position, timestamp)
                except Exception:
                    failed = True  # `_send_alone` raises the reason
                added = builder.count - first
                if added:
                    self._note(batch, first, added, timestamp)
                if failed:
                    await self._send_alone()
                    queue = known.queue_for(partition, None, None)
                    continue
                if self.position == count:
                    return
            queue = await self._next_queue(queue, known if partition is None else None)

    async def _to_many_queues(self, records: RecordColumns, partitions: array[int]) -> None:
        """Append each record to its own partition, to that of its key, or (without either) to the sticky one."""
        known, count = self._known, len(self._columns)
        batches: list[ProducerBatch | None] = []
        appenders: list[RecordAppender | None] = []
        while self.position < count:
            missing = len(known.queues) - len(batches)
            batches += [None] * missing
            appenders += [None] * missing
            timestamp = self._timestamp()
            failed = False
            try:
                records.append_among(appenders, partitions, self.position, timestamp, known.sticky)
            except Exception:
                failed = True  # `_send_alone` raises the reason
            for partition, first in records.touched:
                batch = batches[partition]
                assert batch is not None, "the kernel appends only to open batches"
                self._note(batch, first, batch.count - first, timestamp)
            position = self.position
            if failed:
                partitions[position] = await self._send_alone(partitions[position])
            elif position < count:
                place = records.place(position, partitions, len(batches), known.sticky)
                batch = await self._next_batch(known.queues[place], batches[place], partitions[position] >= 0)
                if batch is not None:
                    batches[place], appenders[place] = batch, batch.builder

    async def _next_batch(
        self, queue: PartitionQueue, full: ProducerBatch | None, is_given: bool
    ) -> ProducerBatch | None:
        """Return the batch for the next record of a queue whose batch ``full`` is full; None to choose again."""
        batch = queue.open
        if batch is not None and batch is not full and batch.builder is not None:
            return batch  # another task has opened it
        queue.close_open()
        partition = queue.topic_partition.partition
        if not is_given and partition == self._known.sticky and partition != self._known.switch_if_due():
            return None
        await self._open_batch(queue)
        return queue.open

    async def _next_queue(self, full: PartitionQueue, known: TopicState | None) -> PartitionQueue:
        """Do as `BatchOpener.next_queue` for the next record, but wait if necessary."""
        columns, position = self._columns, self.position
        key = None if columns.keys is None else columns.keys[position]
        value = columns.values[position]
        if columns.headers is None and type(key) in _UNCHANGING and type(value) in _UNCHANGING:
            next_one = self._opener.next_queue(full, known, key, value, columns.same_headers)
            if next_one is not None:
                return next_one
        full.close_open()
        queue = full if known is None else known.queues[known.switch_if_due()]
        if queue.open is None:
            await self._open_batch(queue)
        return queue

    async def _open_batch(self, queue: PartitionQueue) -> None:
        """Open a batch for the next record."""
        columns, position = self._columns, self.position
        key = None if columns.keys is None else columns.keys[position]
        value = columns.values[position]
        headers: Any = columns.same_headers
        if columns.headers is not None or type(key) not in _UNCHANGING or type(value) not in _UNCHANGING:
            record = self._serializer.prepared(columns.record(self._topic, position))
            _, key, value = self._serializer.serialize(record)
            headers = record.headers
        await self._opener.open_batch(queue, self._opener.record_bytes(queue, key, value, headers))

    async def _send_alone(self, given: int = -1) -> int:
        """Send the next record, on which the kernel failed, as `Producer.send` does; raise the same errors.

        Returns its partition.
        """
        known = self._known
        give_up_at = self._opener.give_up_at()
        record = self._columns.record(self._topic, self.position)
        if given >= len(known.queues):
            known = await self._topics.learn(self._topic, given, give_up_at)
        record = self._serializer.prepared(record)
        timestamp, key, value = self._serializer.serialize(record)
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
            size = self._opener.record_bytes(queue, key, value, record.headers)
            await self._opener.open_batch(queue, size, give_up_at)

    def _timestamp(self) -> int:
        return self._wall_ms() if self._columns.timestamp is None else self._columns.timestamp

    def _note(self, batch: ProducerBatch, first: int, added: int, timestamp: int) -> None:
        # The record that opened a batch is as old as the batch.
        self.deliveries.add(batch, first, added, timestamp, self._now() - batch.created_at if first else 0.0)
        self.position += added


def _with_number(error: Exception, position: int, count: int) -> Exception:
    """Return the error with the number of its record, and a note on how many records were accepted."""
    if type(error) in _OF_ONE_RECORD:
        again = type(error)(f"record {position} of {count}: {error}")
        again.__traceback__ = error.__traceback__
        error = again
    error.add_note(f"send_many accepted {position} of {count} records: those before number {position}, counted from 0")
    return error
