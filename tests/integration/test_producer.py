"""The producer on real sockets: with our own broker, or with the one that ``TRIOKAFKA_TEST_BOOTSTRAP`` names."""

from __future__ import annotations

from typing import Any

import kafka
import pytest
import trio

import triokafka
from triokafka.errors import ConfigurationError, KafkaTimeoutError, UnknownTopicOrPartitionError


async def _create(bootstrap: str, topic: str, partitions: int = 1, **configs: str) -> None:
    async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([triokafka.NewTopic(topic, partitions, 1, configs)])


def _read(bootstrap: str, topic: str, count: int) -> list[Any]:
    """Return all records of a topic, read by another client's consumer."""
    consumer = kafka.KafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None)
    try:
        found: list[Any] = []
        while len(found) < count:
            for records in consumer.poll(timeout_ms=10_000).values():
                found += records
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_another_client_reads_the_records(bootstrap: str, topic: str, compression: str) -> None:
    with trio.fail_after(60):
        await _create(bootstrap, topic)
        async with triokafka.Producer(
            bootstrap_servers=bootstrap, compression_type=compression, batch_size=3000
        ) as producer:
            for i in range(200):
                await producer.send(
                    topic,
                    b"value %d" % i * (i % 7) if i % 5 else None,
                    key=b"%d" % i if i % 3 else None,
                    timestamp_ms=1_700_000_000_000 + i,
                    headers=[("h", b"%d" % i), ("null", None)] if i % 2 else [],
                )
        records = await trio.to_thread.run_sync(_read, bootstrap, topic, 200)
    assert [r.offset for r in records] == list(range(200))
    for i, record in enumerate(records):
        assert record.value == (b"value %d" % i * (i % 7) if i % 5 else None)
        assert record.key == (b"%d" % i if i % 3 else None)
        assert record.timestamp == 1_700_000_000_000 + i
        assert [tuple(h) for h in record.headers] == ([("h", b"%d" % i), ("null", None)] if i % 2 else [])


async def test_many_tasks_share_a_producer(bootstrap: str, topic: str) -> None:
    offsets: list[int] = []
    with trio.fail_after(60):
        await _create(bootstrap, topic)
        async with triokafka.Producer(bootstrap_servers=bootstrap, linger_ms=1) as producer:

            async def one(number: int) -> None:
                for _ in range(20):
                    offsets.append((await (await producer.send(topic, b"%d" % number))).offset)

            async with trio.open_nursery() as nursery:
                for number in range(50):
                    nursery.start_soon(one, number)
    assert sorted(offsets) == list(range(1000))


async def test_columns_of_lists_and_of_arrow_are_sent(bootstrap: str, topic: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    with trio.fail_after(60):
        await _create(bootstrap, topic, 3)
        async with triokafka.Producer(bootstrap_servers=bootstrap) as producer:
            listed = await producer.send_many(topic, [b"%d" % i for i in range(5000)], partition=1)
            arrow = await producer.send_many(
                topic,
                pyarrow.array([b"v", None, b"w"]),
                keys=pyarrow.array([b"a", b"b", None]),
                partition=[2, 2, 2],
                timestamp_ms=[10, 20, 30],
                headers=[[("h", b"1")], [], []],
            )
            assert await listed == {(topic, 1): (0, 4999)}
            assert await arrow == {(topic, 2): (0, 2)}
            assert [(await delivery).timestamp for delivery in arrow] == [10, 20, 30]
            assert len(list(listed)) == len(listed) == 5000
            assert (await list(listed)[4321]).offset == 4321
            long = pyarrow.chunked_array([[b"%d" % i for i in range(start, start + 10_000)] for start in (0, 10_000)])
            assert await (await producer.send_many(topic, long, partition=0)) == {(topic, 0): (0, 19_999)}
            assert await (await producer.send_many(topic, [])) == {}
            keyed = await producer.send_many(topic, [b"x"] * 100, keys=[b"%d" % i for i in range(100)])
            assert sum(last - first + 1 for first, last in (await keyed).values()) >= 100


async def test_columns_with_different_lengths_are_refused(bootstrap: str, topic: str) -> None:
    async with triokafka.Producer(bootstrap_servers=bootstrap) as producer:
        with pytest.raises(ValueError, match="2 values but 1 keys"):
            await producer.send_many(topic, [b"a", b"b"], keys=[b"k"])
        with pytest.raises(TypeError, match="values must be a sequence"):
            await producer.send_many(topic, b"bytes")


async def test_broker_stamps_records_of_a_log_append_time_topic(bootstrap: str, topic: str) -> None:
    with trio.fail_after(60):
        await _create(bootstrap, topic, **{"message.timestamp.type": "LogAppendTime"})  # type: ignore[arg-type]
        async with triokafka.Producer(bootstrap_servers=bootstrap) as producer:
            metadata = await (await producer.send(topic, b"v", timestamp_ms=1))
    assert metadata.timestamp > 1_600_000_000_000


async def test_unknown_topic_without_automatic_creation_gives_a_sentence(bootstrap: str, topic: str) -> None:
    async with triokafka.Producer(
        bootstrap_servers=bootstrap, allow_auto_create_topics=False, max_block_ms=1500
    ) as producer:
        with pytest.raises(UnknownTopicOrPartitionError, match=f"topic '{topic}' does not exist"):
            await producer.send(topic, b"v")


async def test_unreachable_broker_raises_a_descriptive_error() -> None:
    async with triokafka.Producer(bootstrap_servers="127.0.0.1:1", max_block_ms=500) as producer:
        with pytest.raises(KafkaTimeoutError, match=r"127\.0\.0\.1:1: Connection refused"):
            await producer.send("topic", b"v")


def test_wrong_option_names_the_nearest_right_one() -> None:
    dotted: dict[str, Any] = {"linger.ms": 5}
    with pytest.raises(
        ConfigurationError, match=r"'linger\.ms' is not an option of the producer: did you mean 'linger_ms'"
    ):
        triokafka.Producer(**dotted)
