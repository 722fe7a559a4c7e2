"""A service's work with our client, step by step: the same steps for every broker that the client supports."""

from __future__ import annotations

import pytest
import trio

import triokafka
from tests.support.waiting import eventually
from triokafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError
from triokafka.structs import OffsetAndMetadata, TopicPartition

PARTITIONS = 4
PER_CODEC = 200
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FIRST_TIMESTAMP = 1_700_000_000_000


def expected() -> set[tuple[int, bytes | None, bytes, int, str]]:
    return {
        (i % PARTITIONS, b"key-%d" % i, f"{codec}-{i}".encode(), FIRST_TIMESTAMP + i, codec)
        for codec in CODECS
        for i in range(PER_CODEC)
    }


async def run(bootstrap: str, topic: str, group: str, *, time_lookup: bool = True) -> None:
    """Run all steps, within a minute."""
    with trio.fail_after(60):
        async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
            await create_and_alter(admin, topic)
            await produce(bootstrap, topic)
            await consume_in_a_group(bootstrap, topic, group)
            await resume(bootstrap, topic, group)
            if time_lookup:
                await look_up(bootstrap, topic)
            await delete(admin, topic)


async def create_and_alter(admin: triokafka.AdminClient, topic: str) -> None:
    await admin.create_topics([triokafka.NewTopic(topic, 2, 1, configs={"retention.ms": "-1"})])
    with pytest.raises(TopicAlreadyExistsError):
        await admin.create_topics([triokafka.NewTopic(topic, 2, 1)])
    await admin.create_partitions({topic: PARTITIONS})

    async def has_all_partitions() -> bool:
        return len((await admin.describe_topics([topic]))[topic].partitions) == PARTITIONS

    await eventually(has_all_partitions)
    resource = triokafka.ConfigResource.topic(topic)
    await admin.incremental_alter_configs({resource: {"max.message.bytes": "2000000"}})

    async def is_altered() -> bool:
        entries = (await admin.describe_configs([resource]))[resource]
        assert entries["retention.ms"].value == "-1"
        return entries["max.message.bytes"].value == "2000000"

    await eventually(is_altered)


async def produce(bootstrap: str, topic: str) -> None:
    for codec in CODECS:
        async with triokafka.Producer(
            bootstrap_servers=bootstrap, compression_type=codec, linger_ms=5, enable_idempotence=True
        ) as producer:
            deliveries = [
                await producer.send(
                    topic,
                    f"{codec}-{i}".encode(),
                    key=b"key-%d" % i,
                    partition=i % PARTITIONS,
                    timestamp_ms=FIRST_TIMESTAMP + i,
                    headers=[("codec", codec.encode()), ("empty", None)],
                )
                for i in range(PER_CODEC)
            ]
            offsets = [(await delivery).offset for delivery in deliveries]
        for partition in range(PARTITIONS):
            mine = offsets[partition::PARTITIONS]
            assert mine == list(range(mine[0], mine[0] + len(mine)))


async def consume_in_a_group(bootstrap: str, topic: str, group: str) -> None:
    """Two members, the second joins late: every record is read at least once, and each partition has one owner."""
    seen: set[tuple[int, bytes | None, bytes, int, str]] = set()

    def member() -> triokafka.Consumer:
        return triokafka.Consumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=200,
            metadata_max_age_ms=1_000,
        )

    async def poll(consumer: triokafka.Consumer) -> None:
        for partition, records in (await consumer.poll(timeout_ms=200)).items():
            for record in records:
                assert record.value is not None
                headers = dict(record.headers)
                assert headers["empty"] is None
                codec = (headers["codec"] or b"").decode()
                seen.add((partition.partition, record.key, record.value, record.timestamp, codec))

    async with member() as first:
        while seen != expected() or len(first.assignment()) != PARTITIONS:
            await poll(first)
        async with member() as second:
            while not len(first.assignment()) == len(second.assignment()) == PARTITIONS // 2:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(poll, first)
                    nursery.start_soon(poll, second)
            assert first.assignment() | second.assignment() == {TopicPartition(topic, p) for p in range(PARTITIONS)}
    assert seen == expected()


async def resume(bootstrap: str, topic: str, group: str) -> None:
    """Leave with committed offsets, so that the next member reads only new records."""
    async with triokafka.Producer(bootstrap_servers=bootstrap) as producer:
        metadata = await (await producer.send(topic, b"late", partition=1, timestamp_ms=FIRST_TIMESTAMP + 1_000_000))
    async with triokafka.Consumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        async for record in consumer:
            assert (record.partition, record.offset, record.value) == (1, metadata.offset, b"late")
            break
        await consumer.commit({TopicPartition(topic, 1): OffsetAndMetadata(metadata.offset + 1, "a note")})
        committed = await consumer.committed(TopicPartition(topic, 1))
        assert committed is not None
        assert (committed.offset, committed.metadata) == (metadata.offset + 1, "a note")


async def look_up(bootstrap: str, topic: str) -> None:
    partition = TopicPartition(topic, 1)
    per_partition = PER_CODEC * len(CODECS) // PARTITIONS
    async with triokafka.Consumer(bootstrap_servers=bootstrap) as consumer:
        found = (await consumer.offsets_for_times({partition: FIRST_TIMESTAMP + 100}))[partition]
        assert found is not None
        assert (found.offset, found.timestamp) == (100 // PARTITIONS, FIRST_TIMESTAMP + 101)
        assert (await consumer.offsets_for_times({partition: FIRST_TIMESTAMP + 10_000_000}))[partition] is None
        assert await consumer.beginning_offsets([partition]) == {partition: 0}
        assert await consumer.end_offsets([partition]) == {partition: per_partition + 1}


async def delete(admin: triokafka.AdminClient, topic: str) -> None:
    await admin.delete_topics([topic])

    async def is_gone() -> bool:
        return topic not in {listing.name for listing in await admin.list_topics()}

    await eventually(is_gone)
    with pytest.raises(UnknownTopicOrPartitionError):
        await admin.delete_topics([topic])
