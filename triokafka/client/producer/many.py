"""Sending many records in one call: lists and Arrow columns into batches, stretch by stretch.

A stretch is what goes into open batches without anything to wait for; the kernel walks it, so that nothing here happens
per record. Producers with serializers, interceptors, a partitioner or a callback for every record do need each record
as an object: theirs are sent one by one.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from triokafka.client.deliveries import Deliveries
from triokafka.client.producer.columns import Columns, Rows
from triokafka.client.producer.interceptors import ProducerRecord
from triokafka.client.producer.topic_state import TopicState
from triokafka.errors import KafkaError, MessageSizeTooLargeError, SerializationError, UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from triokafka.client.producer.batch import ProducerBatch
    from triokafka.client.producer.producer import Producer
    from triokafka.records.kernel import RecordAppender

_TAKES_A_SENTENCE: Final = (TypeError, ValueError, SerializationError, MessageSizeTooLargeError)


async def send_many(
    producer: Producer,
    topic: str,
    values: Any,
    keys: Any,
    partition: int | Sequence[int] | Any | None,
    timestamp_ms: int | Sequence[int] | Any | None,
    headers: Any,
) -> Deliveries:
    """`Producer.send_many`."""
    producer._check_usable()
    options = producer.options
    if (
        options.interceptors
        or options.partitioner
        or options.on_delivery
        or options.key_serializer
        or (options.value_serializer)
    ):
        return await _one_by_one(producer, topic, Rows(values, keys, partition, timestamp_ms, headers))
    intake = producer._intake
    intake.serialize(intake.prepared(ProducerRecord(topic, timestamp_ms=0)))
    columns = Columns(values, keys, partition, timestamp_ms, headers, now_ms=producer._wall_ms)
    known = await intake.learn(topic, columns.partition, intake.give_up_at())
    sending = _Sending(producer, topic, columns, known)
    try:
        if columns.partition is not None or (
            columns.partitions is None and (keys is None or options.partitioner_ignore_keys)
        ):
            await sending.to_one_queue()
        else:
            await sending.to_many_queues()
    except Exception as error:
        raise _naming_record(error, sending.position, len(columns)) from error.__cause__
    return sending.deliveries
