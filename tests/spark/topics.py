"""Topics for the Spark tests, filled through the public clients."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import trio

import triokafka
from triokafka.structs import TopicPartition

_numbers = itertools.count(1)


class Record(NamedTuple):
    """A record to write; its position in the partition is its offset."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    timestamp_ms: int = 1_388_491_200_000
    headers: tuple[tuple[str, bytes | None], ...] = ()


def make_topic(bootstrap: str, records: Iterable[Record] = (), *, partitions: int = 1) -> str:
    """Create a topic under a new name, write the records, and return the name."""
    name = f"topic-{next(_numbers)}"

    async def make() -> None:
        async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics(
                [
                    triokafka.NewTopic(
                        name, partitions, 1, configs={"retention.ms": "-1", "max.message.bytes": "4194304"}
                    )
                ]
            )

    trio.run(make)
    write(bootstrap, name, records)
    return name


def write(bootstrap: str, topic: str, records: Iterable[Record]) -> None:
    """Write records to a topic, and wait for their acknowledgements."""

    trio.run(partial(produce, bootstrap, topic, records, compression_type="lz4", max_request_size=4 << 20))


async def produce(bootstrap: str, topic: str, records: Iterable[Record], **options: Any) -> None:
    """Write records with a producer of these options, and wait for their acknowledgements."""
    async with triokafka.Producer(bootstrap_servers=bootstrap, **options) as producer:
        deliveries = [
            await producer.send(
                topic,
                record.value,
                key=record.key,
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
                headers=record.headers,
            )
            for record in records
        ]
        for delivery in deliveries:
            await delivery


def delete_before(bootstrap: str, topic: str, offset: int, partition: int = 0) -> None:
    """Delete the records below an offset, as retention does."""

    async def delete() -> None:
        async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.delete_records({TopicPartition(topic, partition): offset})

    trio.run(delete)


def delete_topic(bootstrap: str, topic: str) -> None:
    """Delete a topic."""

    async def delete() -> None:
        async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.delete_topics([topic])

    trio.run(delete)


def options(bootstrap: str, topic: str, **more: str) -> dict[str, Any]:
    """Return the options of a read."""
    return {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **more}
