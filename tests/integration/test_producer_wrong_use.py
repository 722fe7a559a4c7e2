"""Records refused by a real broker: the right error for the right record, and no other record lost."""

from __future__ import annotations

import pytest
import trio

import triokafka
from triokafka.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTopicError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    UnknownTopicOrPartitionError,
)


async def create(bootstrap: str, topic: str, partitions: int = 2, **configs: str) -> None:
    async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        await admin.create_topics([triokafka.NewTopic(topic, num_partitions=partitions, configs=named)])


def whole(producer: triokafka.Producer) -> bool:
    metrics = producer.metrics()
    return metrics["buffer_available_bytes"] == metrics["buffer_total_bytes"]


async def test_record_that_is_too_large_for_the_topic_fails_alone(bootstrap: str, topic: str) -> None:
    await create(bootstrap, topic, 1, max_message_bytes="5000")
    async with triokafka.Producer(bootstrap_servers=bootstrap, linger_ms=50) as producer:
        small = [await producer.send(topic, b"x" * 1000) for _ in range(8)]
        large = await producer.send(topic, b"x" * 8000)
        small += [await producer.send(topic, b"x" * 1000) for _ in range(8)]
        with pytest.raises(MessageSizeTooLargeError, match="refused"):
            await large
        assert [(await delivery).offset for delivery in small] == list(range(16))
        assert whole(producer)
        assert producer.metrics()["batch_split_total"] >= 1


async def test_error_of_a_missing_partition_has_its_number(bootstrap: str, topic: str) -> None:
    await create(bootstrap, topic, 2)
    async with triokafka.Producer(bootstrap_servers=bootstrap) as producer:
        with pytest.raises(UnknownTopicOrPartitionError, match="no partition 2: it has 2"):
            await producer.send(topic, b"v", partition=2)
        assert (await (await producer.send(topic, b"v", partition=1))).offset == 0


async def test_invalid_topic_name_is_refused_at_once(bootstrap: str) -> None:
    async with triokafka.Producer(bootstrap_servers=bootstrap, max_block_ms=20_000) as producer:
        with trio.fail_after(60), pytest.raises(InvalidTopicError):
            await producer.send("not a topic/at all", b"v")


async def test_record_without_key_fails_alone_on_a_compacted_topic(bootstrap: str, topic: str) -> None:
    """KIP-467."""
    await create(bootstrap, topic, 1, cleanup_policy="compact")
    async with triokafka.Producer(bootstrap_servers=bootstrap, linger_ms=100) as producer:
        await producer.partitions_for(topic)
        good = await producer.send(topic, b"v", key=b"k", partition=0)
        bad = await producer.send(topic, b"v", partition=0)
        with pytest.raises(InvalidRecordError):
            await bad
        with pytest.raises(InvalidRecordError, match="send it again"):
            await good
        assert (await (await producer.send(topic, b"v", key=b"k", partition=0))).offset == 0
        assert whole(producer)


async def test_timestamp_too_far_from_the_brokers_clock_is_refused(bootstrap: str, topic: str) -> None:
    await create(bootstrap, topic, 1, message_timestamp_after_max_ms="1000")
    async with triokafka.Producer(bootstrap_servers=bootstrap) as producer:
        with pytest.raises(InvalidTimestampError, match=topic):
            await (await producer.send(topic, b"v", timestamp_ms=2**42))
        assert (await (await producer.send(topic, b"v"))).offset == 0
        assert whole(producer)


async def test_topic_that_is_deleted_while_sending_fails_its_records_and_no_others(bootstrap: str, topic: str) -> None:
    other = f"{topic}-other"
    await create(bootstrap, topic, 1)
    await create(bootstrap, other, 1)
    async with triokafka.Producer(
        bootstrap_servers=bootstrap,
        delivery_timeout_ms=4000,
        request_timeout_ms=2000,
        linger_ms=0,
        allow_auto_create_topics=False,
    ) as producer:
        await (await producer.send(topic, b"v"))
        await (await producer.send(other, b"v"))
        async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.delete_topics([topic])
        lost = await producer.send(topic, b"v")
        delivered = await producer.send(other, b"v")
        assert (await delivered).offset == 1
        with pytest.raises((KafkaTimeoutError, UnknownTopicOrPartitionError)):
            await lost
        assert whole(producer)
