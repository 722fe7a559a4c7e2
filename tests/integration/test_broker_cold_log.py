"""Reading logs that are no longer in the page cache, or whose files were changed by another program."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import triokafka
from triokafka.errors import KafkaError
from triokafka.testing import running_broker
from triokafka.world.system import RealWorld

RECORDS = 6_000
VALUE_BYTES = 1_000


def evict(directory: Path) -> None:
    """Evict the files below a directory from the page cache."""
    for path in directory.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def value(number: int) -> bytes:
    return number.to_bytes(4, "big") * (VALUE_BYTES // 4)


async def fill(bootstrap: str, topic: str) -> None:
    async with triokafka.Producer(bootstrap_servers=bootstrap) as producer:
        await (await producer.send_many(topic, [value(number) for number in range(RECORDS)], partition=0))


async def read(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    """Return the first records of partition 0."""
    values: list[bytes | None] = []
    async with triokafka.Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([triokafka.TopicPartition(topic, 0)])
        while len(values) < count:
            for records in (await consumer.poll(timeout_ms=20_000, max_records=count - len(values))).values():
                values += [record.value for record in records]
    return values


async def test_cold_log_of_many_segments_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Threads read headers, indexes and records from the disk."""
    options: dict[str, Any] = {"log_dirs": (str(tmp_path),), "log_segment_bytes": 1_048_576}
    expected = [value(number) for number in range(RECORDS)]
    async with running_broker(world=RealWorld(), **options) as broker:
        await fill(broker.bootstrap_servers, "t")
        evict(tmp_path)
        assert await read(broker.bootstrap_servers, "t", RECORDS) == expected
    evict(tmp_path)
    async with running_broker(world=RealWorld(), **options) as broker:
        assert await read(broker.bootstrap_servers, "t", RECORDS) == expected


async def test_truncated_segment_file_fails_only_its_partition(tmp_path: Path) -> None:
    """The broker continues, and serves its other partitions."""
    async with running_broker(world=RealWorld(), log_dirs=(str(tmp_path),)) as broker:
        for topic in ("whole", "short"):
            await fill(broker.bootstrap_servers, topic)
        (log,) = tmp_path.glob("short-0/*.log")
        os.truncate(log, 100_000)
        async with triokafka.Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
            consumer.assign([triokafka.TopicPartition("short", 0)])
            consumer.seek(triokafka.TopicPartition("short", 0), RECORDS - 10)
            with suppress(KafkaError):
                assert not await consumer.poll(timeout_ms=500)
        assert len(await read(broker.bootstrap_servers, "whole", RECORDS)) == RECORDS
