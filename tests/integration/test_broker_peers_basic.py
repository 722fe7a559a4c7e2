"""Every client reads the records of every other client: every codec, headers, keys, tombstones, through one topic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafka import KafkaConsumer, KafkaProducer

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
Row = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes], ...], int]
TIMESTAMP = 1_700_000_000_000


def rows(writer: str, codec: str) -> list[Row]:
    """Return the records of one writer with one codec."""
    name = f"{writer}/{codec}".encode()
    return [
        (name, b"value " * 50, (("h", b"1"), ("h", b"2")), TIMESTAMP),
        (name, None, (), TIMESTAMP + 1),
        (None, b"", (("é", b"\0\xff"),), TIMESTAMP + 2),
    ]


def with_kafka_python(bootstrap: str, topic: str, codec: str) -> None:
    """Write with kafka-python."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec)
    for key, value, headers, timestamp in rows("kafka-python", codec):
        producer.send(topic, key=key, value=value, headers=list(headers), timestamp_ms=timestamp, partition=0)
    producer.flush()
    producer.close()


def with_librdkafka(bootstrap: str, topic: str, codec: str) -> None:
    """Write with confluent-kafka."""
    failures: list[Any] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50})
    for key, value, headers, timestamp in rows("librdkafka", codec):
        producer.produce(
            topic,
            key=key,
            value=value,
            headers=list(headers),
            timestamp=timestamp,
            partition=0,
            on_delivery=lambda error, message: failures.append(error) if error else None,
        )
    assert producer.flush(30) == 0
    assert not failures


def with_aiokafka(bootstrap: str, topic: str, codec: str) -> None:
    """Write with aiokafka."""

    async def main() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, linger_ms=50
        )
        async with producer:
            for key, value, headers, timestamp in rows("aiokafka", codec):
                await producer.send(
                    topic, key=key, value=value, headers=list(headers), timestamp_ms=timestamp, partition=0
                )

    asyncio.run(main())


def by_kafka_python(bootstrap: str, topic: str, count: int) -> list[Row]:
    """Read with kafka-python."""
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=30_000
    )
    found = []
    for record in consumer:
        found.append((record.key, record.value, tuple(map(tuple, record.headers)), record.timestamp))
        if len(found) == count:
            break
    consumer.close()
    return found


def by_librdkafka(bootstrap: str, topic: str, count: int) -> list[Row]:
    """Read with confluent-kafka."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"{topic}-librdkafka", "auto.offset.reset": "earliest"}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[Row] = []
    while len(found) < count:
        message = consumer.poll(30)
        assert message is not None and not message.error()
        headers: Any = tuple(message.headers() or ())
        key: Any = message.key()
        value: Any = message.value()
        found.append((key, value, headers, message.timestamp()[1]))
    consumer.close()
    return found


def by_aiokafka(bootstrap: str, topic: str, count: int) -> list[Row]:
    """Read with aiokafka."""

    async def main() -> list[Row]:
        found: list[Row] = []
        async with AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
            while len(found) < count:
                record = await asyncio.wait_for(consumer.getone(), 30)
                found.append((record.key, record.value, tuple(map(tuple, record.headers)), record.timestamp))
        return found

    return asyncio.run(main())


@pytest.mark.parametrize("read", [by_kafka_python, by_librdkafka, by_aiokafka])
def test_every_client_reads_the_records_of_every_client(
    read: Callable[[str, str, int], list[Row]], bootstrap: str, topic: str
) -> None:
    """The broker stores batches as they arrive, so that each reader meets each codec."""
    expected: list[Row] = []
    for writer, write in (
        ("kafka-python", with_kafka_python),
        ("librdkafka", with_librdkafka),
        ("aiokafka", with_aiokafka),
    ):
        for codec in CODECS:
            write(bootstrap, topic, codec)
            expected += rows(writer, codec)
    assert read(bootstrap, topic, len(expected)) == expected
