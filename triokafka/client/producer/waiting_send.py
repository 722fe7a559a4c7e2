"""Appends records to the accumulator on the slow path: those that the fast path cannot put into an open batch.

Interceptors, serializers and partitioners, unknown topics, and batches that must be opened first. A record waits in
`TopicStates.learn` for metadata and in `BatchOpener.open_batch` for memory; cancelling either wait has no effect on the
buffer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triokafka.client.deliveries import Deliveries, Delivery, FilteredDelivery
from triokafka.client.producer.batch import DeliveryCallback, ProducerBatch
from triokafka.client.producer.batch_opener import BatchOpener
from triokafka.client.producer.interceptors import Headers, InterceptorChain, ProducerRecord
from triokafka.client.producer.partition_queue import PartitionQueue
from triokafka.client.producer.record_serializer import RecordSerializer
from triokafka.client.producer.topic_state import TopicState
from triokafka.client.producer.topic_states import TopicStates
from triokafka.structs import Buffer, TopicPartition


class WaitingSend:
    """The slow path of one producer. Its methods take the arguments of `Producer.send` by position.

    ``now`` is the world's monotonic clock, in seconds; ``check_usable`` raises when the producer is closed or has
    failed; ``on_delivery`` is the callback of records without their own.
    """

    def __init__(
        self,
        topics: TopicStates,
        serializer: RecordSerializer,
        opener: BatchOpener,
        interceptors: InterceptorChain,
        *,
        now: Callable[[], float],
        check_usable: Callable[[], None],
        on_delivery: DeliveryCallback | None,
    ) -> None:
        self._topics = topics
        self._serializer = serializer
        self._opener = opener
        self._interceptors = interceptors
        self._now = now
        self._check_usable = check_usable
        self._on_delivery = on_delivery

    async def send(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers,
        on_delivery: DeliveryCallback | None,
    ) -> Delivery:
        """`Producer.send`."""
        record = self._begin(ProducerRecord(topic, value, key, partition, timestamp_ms, headers), on_delivery)
        if record is None:
            return FilteredDelivery(topic)
        chosen: TopicPartition | None = None
        try:
            give_up_at: float | None = None
            known = self._topics.find(record.topic, record.partition)
            if known is None:
                give_up_at = self._opener.give_up_at()
                known = await self._topics.learn(record.topic, record.partition, give_up_at)
            record = self._serializer.prepared(record)
            timestamp, key, value = self._serializer.serialize(record)
            queue = known.queue_for(record.partition, key, value)
            chosen = queue.topic_partition
            queue, place = self._append(known, queue, record, timestamp, key, value)
            while place is None:
                size = self._opener.record_bytes(queue, key, value, record.headers)
                await self._opener.open_batch(queue, size, give_up_at)
                queue, place = self._append(known, queue, record, timestamp, key, value)
        except Exception as error:
            self._interceptors.on_send_error(record, error, chosen)
            raise
        return self._new_delivery(*place, timestamp, key, value, on_delivery)

    def send_now(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers,
        on_delivery: DeliveryCallback | None,
    ) -> Delivery:
        """`Producer.send_nowait`."""
        record = self._begin(ProducerRecord(topic, value, key, partition, timestamp_ms, headers), on_delivery)
        if record is None:
            return FilteredDelivery(topic)
        return self._new_delivery(*self._place_now(record), on_delivery)

    def send_now_as_deliveries(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers,
    ) -> Deliveries:
        """`Producer.send_nowait_as_deliveries`."""
        record = self._begin(ProducerRecord(topic, value, key, partition, timestamp_ms, headers), None)
        deliveries = Deliveries()
        if record is None:
            deliveries.add_one(FilteredDelivery(topic))
        elif self._interceptors.listens or self._on_delivery is not None:
            deliveries.add_one(self._new_delivery(*self._place_now(record), None))
        else:
            batch, index, timestamp, _, _ = self._place_now(record)
            deliveries.add(batch, index, 1, timestamp, self._now() - batch.created_at)
        return deliveries

    def _place_now(self, record: ProducerRecord) -> tuple[ProducerBatch, int, int, Buffer | None, Buffer | None]:
        """Append the record without waiting. Return batch, index, timestamp, key and value."""
        chosen: TopicPartition | None = None
        try:
            known = self._topics.known_now(record.topic, record.partition)
            record = self._serializer.prepared(record)
            timestamp, key, value = self._serializer.serialize(record)
            queue = known.queue_for(record.partition, key, value)
            chosen = queue.topic_partition
            queue, place = self._append(known, queue, record, timestamp, key, value)
            while place is None:
                self._opener.open_batch_nowait(queue, self._opener.record_bytes(queue, key, value, record.headers))
                queue, place = self._append(known, queue, record, timestamp, key, value)
        except Exception as error:
            self._interceptors.on_send_error(record, error, chosen)
            raise
        return *place, timestamp, key, value

    def _begin(self, record: ProducerRecord, on_delivery: DeliveryCallback | None) -> ProducerRecord | None:
        """Return the record after all interceptors, or None when one dropped it."""
        self._check_usable()
        _check_callback(on_delivery)
        return self._interceptors.on_send(record)

    def _append(
        self,
        known: TopicState,
        queue: PartitionQueue,
        record: ProducerRecord,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
    ) -> tuple[PartitionQueue, tuple[ProducerBatch, int] | None]:
        """Put the record into the queue's open batch; when that is full, into the batch of the partition chosen next.

        Returns the queue and the record's place, None when the queue has no open batch.
        """
        while (batch := queue.open) is not None:
            index = batch.append(timestamp, key, value, record.headers)
            if index >= 0:
                return queue, (batch, index)
            queue.close_open()
            queue = known.queue_for(record.partition, key, value)
        return queue, None

    def _new_delivery(
        self,
        batch: ProducerBatch,
        index: int,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        on_delivery: DeliveryCallback | None,
    ) -> Delivery:
        delivery = Delivery(
            batch,
            index,
            timestamp,
            -1 if key is None else len(key),
            -1 if value is None else len(value),
            self._now() - batch.created_at if index else 0.0,  # the first record is as old as its batch
        )
        if self._interceptors.listens:
            batch.add_callback(delivery, index, self._interceptors.acknowledgement_for(batch.topic_partition))
        callback = on_delivery if on_delivery is not None else self._on_delivery
        if callback is not None:
            batch.add_callback(delivery, index, callback)
        return delivery


def _check_callback(callback: object) -> None:
    if callback is not None and not callable(callback):
        raise TypeError(f"on_delivery={callback!r} is not a function")
