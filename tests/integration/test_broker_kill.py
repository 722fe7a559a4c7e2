"""``kill -9`` of the broker while producing with acks=all: nothing acknowledged is lost.

A real process is killed with SIGKILL in the middle of a stream of records, 20 times, and started again on the same data
directory and port. The producer goes on through all of it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

import triokafka
from tests.broker_process import BrokerProcess
from triokafka.structs import OffsetAndMetadata, RecordMetadata, TopicPartition

KILLS = 20
LONG_KILLS = 200
PARTITIONS = 3
TOPIC = "survivors"
GROUP = "position-keepers"


class Ledger:
    """What the broker has acknowledged: value by (partition, offset), and the newest committed positions."""

    def __init__(self) -> None:
        self.records: dict[tuple[int, int], bytes] = {}
        self.commits: dict[int, int] = {}
        self.changed = trio.Event()

    def acknowledge(self, partition: int, offset: int, value: bytes) -> None:
        known = self.records.setdefault((partition, offset), value)
        assert known == value, f"offset {offset} of partition {partition} was given to two records"
        self.changed.set()
        self.changed = trio.Event()

    async def grows_by(self, count: int) -> None:
        target = len(self.records) + count
        while len(self.records) < target:
            await self.changed.wait()


async def produce(bootstrap: str, ledger: Ledger, stop: trio.Event) -> None:
    """Send numbered records without a pause, and write down each acknowledgement."""

    def note(value: bytes) -> Callable[[RecordMetadata | None, Exception | None], None]:
        def on_delivery(metadata: RecordMetadata | None, error: Exception | None) -> None:
            # A failed record may or may not be in the log; only an acknowledged one must be.
            if metadata is not None:
                ledger.acknowledge(metadata.partition, metadata.offset, value)

        return on_delivery

    async with triokafka.Producer(
        bootstrap_servers=bootstrap,
        acks="all",
        linger_ms=1,
        buffer_memory=200_000,
        retry_backoff_ms=20,
        delivery_timeout_ms=120_000,
        max_block_ms=120_000,
    ) as producer:
        number = 0
        while not stop.is_set():
            value = b"%d" % number
            await producer.send(TOPIC, value, partition=number % PARTITIONS, on_delivery=note(value))
            number += 1
            if number % 100 == 0:
                await trio.lowlevel.checkpoint()


async def commit(bootstrap: str, ledger: Ledger, stop: trio.Event) -> None:
    """Commit ever higher positions, and write down each commit that was acknowledged."""
    async with triokafka.Consumer(
        bootstrap_servers=bootstrap, group_id=GROUP, enable_auto_commit=False, retry_backoff_ms=20
    ) as consumer:
        consumer.assign([TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)])
        position = 0
        while not stop.is_set():
            position += 1
            partition = position % PARTITIONS
            try:
                await consumer.commit({TopicPartition(TOPIC, partition): OffsetAndMetadata(position)})
            except triokafka.errors.RetriableError:
                continue
            ledger.commits[partition] = position


async def read_all(bootstrap: str, ends: dict[TopicPartition, int]) -> dict[tuple[int, int], bytes]:
    found: dict[tuple[int, int], bytes] = {}
    async with triokafka.Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(list(ends))
        while any([await consumer.position(partition) < end for partition, end in ends.items()]):
            for partition, records in (await consumer.poll(timeout_ms=1_000)).items():
                for record in records:
                    found[partition.partition, record.offset] = record.value
    return found


async def test_every_acknowledged_record_and_position_survives_twenty_kills(tmp_path: Path) -> None:
    """(`broker-log`, section I; nothing acknowledged is lost.)"""
    await kill_and_compare(tmp_path, KILLS)


@pytest.mark.long
@pytest.mark.timeout(0)
async def test_every_acknowledged_record_and_position_survives_many_kills(tmp_path: Path) -> None:
    """The same, for as long as `make long` has time."""
    await kill_and_compare(tmp_path, LONG_KILLS)


async def kill_and_compare(tmp_path: Path, kills: int) -> None:
    seed = int(os.environ.get("TRIOKAFKA_TEST_SEED", "0")) or random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    choices = random.Random(seed)
    broker = BrokerProcess(tmp_path / "data", settings={"log.segment.bytes": "1048576"})
    ledger, stop = Ledger(), trio.Event()
    try:
        bootstrap = await trio.to_thread.run_sync(broker.start)
        async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics([triokafka.NewTopic(TOPIC, PARTITIONS, 1)])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce, bootstrap, ledger, stop)
            nursery.start_soon(commit, bootstrap, ledger, stop)
            for _ in range(kills):
                with trio.fail_after(60):
                    await ledger.grows_by(choices.randrange(50, 1_000))
                await trio.to_thread.run_sync(broker.kill)
                await trio.to_thread.run_sync(broker.start)
            with trio.fail_after(60):
                await ledger.grows_by(100)
            stop.set()
        partitions = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        async with triokafka.Consumer(
            bootstrap_servers=bootstrap, group_id=GROUP, enable_auto_commit=False
        ) as consumer:
            consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            committed = await consumer.committed(partitions)
        with trio.fail_after(120):
            found = await read_all(bootstrap, ends)
    finally:
        broker.close()
    lost = {where: value for where, value in ledger.records.items() if found.get(where) != value}
    assert not lost, (
        f"seed {seed}: {len(lost)} of {len(ledger.records)} acknowledged records are lost: {list(lost)[:5]}"
    )
    # Idempotence: a retried batch is written once, so the log holds every number exactly once.
    assert len(set(found.values())) == len(found)
    for partition, position in ledger.commits.items():
        kept = committed[TopicPartition(TOPIC, partition)]
        assert kept is not None and kept.offset >= position, f"seed {seed}: partition {partition} was at {position}"
