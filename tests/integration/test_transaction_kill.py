"""``kill -9`` of a real broker at every step of another client's transactions: every record is copied exactly once.

A copier (aiokafka) reads a topic, writes each record to another one and commits its offsets, all in transactions. The
broker is killed before and after each step, and during commits, and starts again on the same data directory and port.
After an error, the copier restarts from the committed offsets with a new producer, which fences the old one.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from tests.support.broker_process import BrokerProcess

RECORDS = 120
PER_TRANSACTION = 12
PARTITIONS = 3
SECONDS = 60.0
POINTS = ("begun", "written", "offsets", "committing", "committed")
INPUT = TopicPartition("input", 0)


class Copier:
    """Copies ``input`` to ``output``; ``at`` is called at each of `POINTS`."""

    def __init__(self, bootstrap: str, at: Callable[[str], Awaitable[None]]) -> None:
        self._bootstrap = bootstrap
        self._at = at

    async def run(self) -> None:
        """Copy everything."""
        while True:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                transactional_id="copier",
                transaction_timeout_ms=10_000,
                request_timeout_ms=5_000,
            )
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self._bootstrap,
                group_id="copiers",
                isolation_level="read_committed",
                enable_auto_commit=False,
                request_timeout_ms=5_000,
            )
            try:
                await producer.start()
                await consumer.start()
                consumer.assign([INPUT])
                position = await consumer.committed(INPUT) or 0
                consumer.seek(INPUT, position)
                while position < RECORDS:
                    position = await self._copy(producer, consumer, position)
                return
            except (TimeoutError, KafkaError):
                continue
            finally:
                await consumer.stop()
                try:
                    await asyncio.wait_for(producer.stop(), 10)
                except (TimeoutError, KafkaError):
                    pass

    async def _copy(self, producer: AIOKafkaProducer, consumer: AIOKafkaConsumer, position: int) -> int:
        """Copy some records in one transaction; return the next offset."""
        found = await consumer.getmany(INPUT, timeout_ms=2_000, max_records=PER_TRANSACTION)
        records = found.get(INPUT, [])
        if not records:
            return position
        async with asyncio.timeout(20):
            await producer.begin_transaction()
            await self._at("begun")
            for record in records:
                await producer.send("output", record.value, partition=int(record.value) % PARTITIONS)
            await producer.flush()
            await self._at("written")
            following = records[-1].offset + 1
            await producer.send_offsets_to_transaction({INPUT: following}, "copiers")
            await self._at("offsets")
            await self._at("committing")
            await producer.commit_transaction()
            await self._at("committed")
        return int(following)


async def values(bootstrap: str, isolation_level: str) -> Counter[bytes]:
    """Return the count of each value in ``output``."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation_level)
    await consumer.start()
    found: Counter[bytes] = Counter()
    try:
        partitions = [TopicPartition("output", number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        ends = await consumer.end_offsets(partitions)
        async with asyncio.timeout(SECONDS):
            while any([await consumer.position(one) < ends[one] for one in partitions]):
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    found.update(record.value for record in records)
    finally:
        await consumer.stop()
    return found


async def play(broker: BrokerProcess) -> None:
    chance = random.Random(5)
    bootstrap = await asyncio.to_thread(broker.start)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as source:
        for number in range(RECORDS):
            await source.send_and_wait("input", str(number).encode(), partition=0)
    left = list(POINTS)
    chance.shuffle(left)
    killing = asyncio.Lock()
    killers: list[asyncio.Task[None]] = []

    async def restart(pause: float) -> None:
        async with killing:
            await asyncio.sleep(pause)
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)

    async def at(point: str) -> None:
        if not left or left[-1] != point or killing.locked():
            return
        left.pop()
        if point == "committing":
            killers.append(asyncio.create_task(restart(chance.random() * 0.004)))
        else:
            await restart(0)

    await Copier(bootstrap, at).run()
    await asyncio.gather(*killers)
    assert not left, f"the broker was not killed at {left}"
    assert await values(bootstrap, "read_committed") == Counter(str(number).encode() for number in range(RECORDS))


@pytest.mark.timeout(200)
def test_every_record_is_copied_once_although_the_broker_is_killed_at_every_step(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, discards_log=True, settings={"num.partitions": str(PARTITIONS)})
    try:
        asyncio.run(play(broker))
    finally:
        broker.close()
