"""Our consumer against other projects' brokers: the mock cluster inside librdkafka, and noida-db."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
import trio

import triokafka
from tests.integration.test_client_foreign_brokers import (  # noqa: F401 - fixtures
    bootstrap,
    librdkafka_mock,
    noida_db,
    topic,
)
from triokafka.structs import TopicPartition

RECORDS = 300
QUICK: dict[str, Any] = {"auto_offset_reset": "earliest", "session_timeout_ms": 6_000, "heartbeat_interval_ms": 500}


@pytest.fixture
async def filled(bootstrap: str, topic: str) -> str:  # noqa: F811
    """Create a topic with numbered records."""
    with trio.fail_after(60):
        async with triokafka.Producer(bootstrap_servers=bootstrap, max_block_ms=20_000) as producer:
            for number in range(RECORDS):
                await producer.send(topic, b"%d" % number, key=b"%d" % (number % 7))
    return topic


async def test_a_group_reads_commits_and_resumes(bootstrap: str, filled: str) -> None:  # noqa: F811
    group = f"group-{uuid.uuid4().hex[:12]}"
    seen: list[bytes] = []
    for part in (RECORDS // 3, RECORDS - RECORDS // 3):
        with trio.fail_after(60):
            async with triokafka.Consumer(filled, bootstrap_servers=bootstrap, group_id=group, **QUICK) as consumer:
                for _ in range(part):
                    seen.append((await anext(consumer)).value)
                await consumer.commit()
    assert sorted(map(int, seen)) == list(range(RECORDS))


async def test_partitions_assigned_by_hand_are_read_by_poll_batch_and_column(
    bootstrap: str,  # noqa: F811
    filled: str,
) -> None:
    with trio.fail_after(60):
        async with triokafka.Consumer(bootstrap_servers=bootstrap, **QUICK) as consumer:
            partitions = [TopicPartition(filled, n) for n in await consumer.partitions_for_topic(filled) or ()]
            ends = await consumer.end_offsets(partitions)
            assert sum(ends.values()) == RECORDS
            assert set((await consumer.beginning_offsets(partitions)).values()) == {0}
            consumer.assign(partitions)
            polled: list[bytes] = []
            while len(polled) < RECORDS:
                for records in (await consumer.poll(timeout_ms=1_000)).values():
                    polled += [record.value for record in records]
            consumer.seek_to_beginning()
            columns: list[bytes] = []
            while len(columns) < RECORDS:
                columns += (await consumer.poll_arrow(timeout_ms=1_000)).column("value").to_pylist()
            consumer.seek_to_beginning()
            batches: list[bytes] = []
            async for batch in consumer.batches():
                batches += batch.values()
                if len(batches) >= RECORDS:
                    break
    for got in (polled, columns, batches):
        assert sorted(map(int, got)) == list(range(RECORDS))


async def test_a_range_is_read_to_its_end(bootstrap: str, filled: str) -> None:  # noqa: F811
    with trio.fail_after(60):
        async with triokafka.Consumer(bootstrap_servers=bootstrap) as consumer:
            partitions = [TopicPartition(filled, n) for n in await consumer.partitions_for_topic(filled) or ()]
            ends = await consumer.end_offsets(partitions)
        ranges = {partition: (min(2, end), end) for partition, end in ends.items()}
        rows = 0
        async with triokafka.RangeReader(ranges, bootstrap_servers=bootstrap, columns=["offset"]) as reader:
            async for batch in reader:
                rows += batch.num_rows
    assert rows == sum(end - start for start, end in ranges.values())
