"""Reading a whole topic: with our consumer, or with other clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import confluent_kafka
import kafka
import trio

import triokafka
from triokafka.structs import TopicPartition

Entries = dict[TopicPartition, list[tuple[int, bytes | None]]]
"""Offset and value of each record, by partition, in the order of the log."""


async def read_all(bootstrap: str, topics: Mapping[str, int], **options: Any) -> Entries:
    """Read everything in these topics (name to number of partitions), with our consumer."""
    partitions = [TopicPartition(name, number) for name, count in topics.items() for number in range(count)]
    found: Entries = {partition: [] for partition in partitions}
    async with triokafka.Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", **options) as consumer:
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        while any([await consumer.position(partition) < end for partition, end in ends.items()]):
            for partition, records in (await consumer.poll(timeout_ms=500)).items():
                found[partition] += [(record.offset, record.value) for record in records]
    return found


async def read_all_with_kafka_python(bootstrap: str, topics: Mapping[str, int]) -> Entries:
    """Read the same with kafka-python's consumer, in a thread."""
    return await trio.to_thread.run_sync(_read_with_kafka_python, bootstrap, topics)


def _read_with_kafka_python(bootstrap: str, topics: Mapping[str, int]) -> Entries:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap.split(","), group_id=None, auto_offset_reset="earliest", enable_auto_commit=False
    )
    try:
        partitions = [kafka.TopicPartition(name, number) for name, count in topics.items() for number in range(count)]
        found: Entries = {TopicPartition(*partition): [] for partition in partitions}
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            for partition, records in consumer.poll(timeout_ms=500).items():
                found[TopicPartition(*partition)] += [(record.offset, record.value) for record in records]
        return found
    finally:
        consumer.close()


async def read_all_with_confluent(bootstrap: str, topics: Mapping[str, int]) -> Entries:
    """Read the same with librdkafka's consumer, in a thread."""
    return await trio.to_thread.run_sync(_read_with_confluent, bootstrap, topics)


def _read_with_confluent(bootstrap: str, topics: Mapping[str, int]) -> Entries:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.auto.commit": False}
    )
    try:
        partitions = [TopicPartition(name, number) for name, count in topics.items() for number in range(count)]
        found: Entries = {partition: [] for partition in partitions}
        ends = {
            partition: consumer.get_watermark_offsets(confluent_kafka.TopicPartition(*partition), timeout=30)[1]
            for partition in partitions
        }
        consumer.assign([confluent_kafka.TopicPartition(*partition, 0) for partition in partitions])
        while any(end and (not found[p] or found[p][-1][0] < end - 1) for p, end in ends.items()):
            for message in consumer.consume(10_000, 0.5):
                assert message.error() is None, message.error()
                found[TopicPartition(message.topic(), message.partition())].append((message.offset(), message.value()))
        return found
    finally:
        consumer.close()
