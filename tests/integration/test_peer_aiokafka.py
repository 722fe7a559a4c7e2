"""aiokafka does a service's work with the broker; it speaks the oldest versions of all clients in use.

Each scenario runs in an asyncio loop of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

FIRST_TIMESTAMP = 1_700_000_000_000
PATIENCE = 60


def run(scenario: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE):
            await scenario

    asyncio.run(bounded())


async def create(bootstrap: str, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, 4, 1)])
    finally:
        await admin.close()


async def produce(bootstrap: str, topic: str, count: int, **options: object) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=5, **options)
    await producer.start()
    try:
        sent = [
            await producer.send(
                topic,
                b"value-%d" % i,
                key=b"key-%d" % i,
                partition=i % 4,
                timestamp_ms=FIRST_TIMESTAMP + i,
                headers=[("n", b"%d" % i)],
            )
            for i in range(count)
        ]
        offsets = [(await future).offset for future in sent]
    finally:
        await producer.stop()
    for partition in range(4):
        assert offsets[partition::4] == list(range(offsets[partition], offsets[partition] + count // 4))


async def until(condition: Callable[[], bool], step: Callable[[], Awaitable[object]]) -> None:
    while not condition():
        await step()


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_records_come_back_as_they_were_sent(bootstrap: str, topic: str, codec: str | None, idempotent: bool) -> None:
    async def scenario() -> None:
        await create(bootstrap, topic)
        await produce(bootstrap, topic, 400, compression_type=codec, enable_idempotence=idempotent)
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        consumer.assign([TopicPartition(topic, partition) for partition in range(4)])
        records = []
        while len(records) < 400:
            for some in (await consumer.getmany(timeout_ms=500)).values():
                records.extend(some)
        await consumer.stop()
        assert sorted(
            (r.partition, r.offset, r.key, r.value, r.timestamp, tuple(r.headers)) for r in records
        ) == sorted(
            (i % 4, i // 4, b"key-%d" % i, b"value-%d" % i, FIRST_TIMESTAMP + i, (("n", b"%d" % i),))
            for i in range(400)
        )

    run(scenario())


def test_a_group_rebalances_commits_and_resumes(bootstrap: str, topic: str, group: str) -> None:
    async def member() -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
        )
        await consumer.start()
        return consumer

    async def scenario() -> None:
        await create(bootstrap, topic)
        await produce(bootstrap, topic, 400)
        seen: set[tuple[int, int]] = set()

        async def poll(consumer: AIOKafkaConsumer) -> None:
            for partition, records in (await consumer.getmany(timeout_ms=100)).items():
                seen.update((partition.partition, record.offset) for record in records)

        first = await member()
        await until(lambda: len(first.assignment()) == 4 and len(seen) == 400, lambda: poll(first))
        await first.commit()
        second = await member()

        async def poll_both() -> None:
            await asyncio.gather(poll(first), poll(second))

        await until(lambda: len(first.assignment()) == 2 and len(second.assignment()) == 2, poll_both)
        assert first.assignment() | second.assignment() == {TopicPartition(topic, p) for p in range(4)}
        await second.stop()
        await first.stop()

        await produce(bootstrap, topic, 4)
        third = await member()
        again: list[tuple[int, int]] = []
        while len(again) < 4:
            for partition, records in (await third.getmany(timeout_ms=500)).items():
                again.extend((partition.partition, record.offset) for record in records)
        assert sorted(again) == [(partition, 100) for partition in range(4)]
        await third.commit({TopicPartition(topic, 0): (42, "a note")})
        assert await third.committed(TopicPartition(topic, 0)) == 42
        await third.stop()

    run(scenario())


def test_offsets_are_found_by_time(bootstrap: str, topic: str) -> None:
    async def scenario() -> None:
        await create(bootstrap, topic)
        await produce(bootstrap, topic, 400)
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
        await consumer.start()
        partition = TopicPartition(topic, 1)
        found = (await consumer.offsets_for_times({partition: FIRST_TIMESTAMP + 200}))[partition]
        assert (found.offset, found.timestamp) == (50, FIRST_TIMESTAMP + 201)
        assert (await consumer.offsets_for_times({partition: FIRST_TIMESTAMP + 10_000}))[partition] is None
        assert await consumer.beginning_offsets([partition]) == {partition: 0}
        assert await consumer.end_offsets([partition]) == {partition: 100}
        await consumer.stop()

    run(scenario())


def test_topics_are_created_altered_and_deleted(bootstrap: str, topic: str) -> None:
    async def scenario() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        await admin.create_topics([NewTopic(topic, 2, 1, topic_configs={"retention.ms": "3600000"})])
        await admin.create_partitions({topic: NewPartitions(5)})

        async def partitions() -> int:
            (described,) = await admin.describe_topics([topic])
            return len(described["partitions"])

        while await partitions() != 5:
            await asyncio.sleep(0)
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"max.message.bytes": "123456"})])
        assert "123456" in str(await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)]))
        assert topic in await admin.list_topics()
        await admin.delete_topics([topic])
        while topic in await admin.list_topics():
            await asyncio.sleep(0)
        await admin.close()

    run(scenario())
