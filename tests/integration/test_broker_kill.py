"""``kill -9`` of the broker under load: no acknowledged record is lost, and the restart needs no manual repair.

A real process is killed with SIGKILL at random moments and started again on the same data directory and port, while
three idempotent producers write with acks=all, one of them to a topic that is compacted all the time. A group of two
reads and commits, and another consumer commits ever higher offsets. All of them run throughout.

The further effects of a power cut are tested on simulated disks (``tests/simulation``, ``tests/crashing``).
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

import triokafka
from tests.support.broker_process import BrokerProcess
from triokafka.errors import KafkaError, RetriableError
from triokafka.structs import OffsetAndMetadata, RecordMetadata, TopicPartition

KILLS = 10
LONG_KILLS = 100
PARTITIONS = 3
TOPIC = "survivors"
COMPACTED = "newest"
KEYS = 20
GROUP = "position-keepers"
READERS = "readers"
SETTINGS = {
    "log.segment.bytes": "1048576",
    "log.cleaner.backoff.ms": "50",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "group.initial.rebalance.delay.ms": "100",
}


class Ledger:
    """Acknowledged data: values by topic, partition and offset; newest numbers by key; committed offsets."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, int, int], bytes] = {}
        self.newest: dict[bytes, int] = {}
        self.sent: dict[bytes, int] = {}
        self.commits: dict[int, int] = {}
        self.handled: set[tuple[int, int]] = set()
        self.changed = trio.Event()

    def acknowledge(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        known = self.records.setdefault((topic, partition, offset), value)
        assert known == value, f"offset {offset} of partition {partition} of {topic} was given to two records"
        self.notify()

    def notify(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    async def grows_by(self, count: int) -> None:
        target = len(self.records) + count
        while len(self.records) < target:
            await self.changed.wait()

    async def more_is_handled(self) -> None:
        before = len(self.handled)
        while len(self.handled) <= before:
            await self.changed.wait()


async def produce(bootstrap: str, name: str, ledger: Ledger, stop: trio.Event, *, topic: str = TOPIC) -> None:
    """Send numbered records without a pause, and record each acknowledgement."""

    def note(key: bytes | None, value: bytes, number: int) -> Callable[[RecordMetadata | None, Exception | None], None]:
        def on_delivery(metadata: RecordMetadata | None, error: Exception | None) -> None:
            # A failed record may or may not be in the log; only an acknowledged one must be.
            if metadata is not None:
                ledger.acknowledge(topic, metadata.partition, metadata.offset, value)
                if key is not None:
                    ledger.newest[key] = max(number, ledger.newest.get(key, -1))

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
            value = b"%s %d" % (name.encode(), number)
            key = b"key %d" % (number % KEYS) if topic == COMPACTED else None
            if key is not None:
                ledger.sent[key] = number
            partition = number % KEYS % PARTITIONS if topic == COMPACTED else number % PARTITIONS
            await producer.send(topic, value, key=key, partition=partition, on_delivery=note(key, value, number))
            number += 1
            if number % 100 == 0:
                await trio.lowlevel.checkpoint()


async def commit(bootstrap: str, ledger: Ledger, stop: trio.Event) -> None:
    """Commit ever higher offsets, and record each acknowledged commit."""
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
            except RetriableError:
                continue
            ledger.commits[partition] = position


async def read(bootstrap: str, ledger: Ledger) -> None:
    """Run a member of a group that handles every record, until cancelled."""
    async with triokafka.Consumer(
        TOPIC,
        bootstrap_servers=bootstrap,
        group_id=READERS,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        retry_backoff_ms=20,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=500,
        default_api_timeout_ms=300_000,
    ) as consumer:
        while True:
            polled = await consumer.poll(timeout_ms=500, max_records=2_000)
            for partition, records in polled.items():
                ledger.handled.update((partition.partition, record.offset) for record in records)
            if polled:
                ledger.notify()
                try:
                    await consumer.commit()
                except KafkaError:
                    continue  # the group rebalanced, or the broker is down: the next owner handles the records again


async def read_all(bootstrap: str) -> dict[tuple[str, int, int], tuple[bytes | None, bytes]]:
    """Return key and value of every record, by topic, partition and offset."""
    found: dict[tuple[str, int, int], tuple[bytes | None, bytes]] = {}
    partitions = [TopicPartition(topic, n) for topic in (TOPIC, COMPACTED) for n in range(PARTITIONS)]
    async with triokafka.Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        while any([await consumer.position(partition) < end for partition, end in ends.items()]):
            for partition, records in (await consumer.poll(timeout_ms=1_000)).items():
                for record in records:
                    found[*partition, record.offset] = record.key, record.value
    return found


@pytest.mark.timeout(600)
async def test_everything_acknowledged_survives_ten_kills(tmp_path: Path) -> None:
    await kill_and_compare(tmp_path, KILLS)


@pytest.mark.long
@pytest.mark.timeout(0)
async def test_everything_acknowledged_survives_many_kills(tmp_path: Path) -> None:
    """The same, with as many kills as `make long` has time for."""
    await kill_and_compare(tmp_path, LONG_KILLS)


async def kill_and_compare(tmp_path: Path, kills: int) -> None:
    seed = int(os.environ.get("TRIOKAFKA_TEST_SEED", "0")) or random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    choices = random.Random(seed)
    broker = BrokerProcess(tmp_path / "data", settings=SETTINGS)
    ledger, stop = Ledger(), trio.Event()
    try:
        bootstrap = await trio.to_thread.run_sync(broker.start)
        async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
            compacted = {
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": "0.01",
                "internal.segment.bytes": "20000",
                "file.delete.delay.ms": "100",
            }
            await admin.create_topics(
                [
                    triokafka.NewTopic(TOPIC, PARTITIONS, 1),
                    triokafka.NewTopic(COMPACTED, PARTITIONS, 1, configs=compacted),
                ]
            )
        async with trio.open_nursery() as readers:
            for _ in range(2):
                readers.start_soon(read, bootstrap, ledger)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(produce, bootstrap, "first", ledger, stop)
                nursery.start_soon(produce, bootstrap, "second", ledger, stop)
                nursery.start_soon(lambda: produce(bootstrap, "third", ledger, stop, topic=COMPACTED))
                nursery.start_soon(commit, bootstrap, ledger, stop)
                for number in range(kills):
                    with trio.fail_after(120):
                        await ledger.grows_by(choices.randrange(50, 500))
                        if choices.random() < 0.5:  # otherwise the group may never become stable
                            await ledger.more_is_handled()
                    await trio.to_thread.run_sync(broker.kill)
                    await trio.to_thread.run_sync(broker.start)
                    if kills > KILLS and number % 10 == 9:
                        print(f"{number + 1} kills, {len(ledger.records)} records acknowledged", flush=True)
                with trio.fail_after(60):
                    await ledger.grows_by(100)
                stop.set()
            ours = {where[1:] for where in ledger.records if where[0] == TOPIC}
            with trio.fail_after(120):
                while not ours <= ledger.handled:
                    await ledger.changed.wait()
            readers.cancel_scope.cancel()
        partitions = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        async with triokafka.Consumer(
            bootstrap_servers=bootstrap, group_id=GROUP, enable_auto_commit=False
        ) as consumer:
            consumer.assign(partitions)
            committed = await consumer.committed(partitions)
        with trio.fail_after(120):
            found = await read_all(bootstrap)
    finally:
        broker.close()
    compare(ledger, found, seed)
    for partition, position in ledger.commits.items():
        offset_after = committed[TopicPartition(TOPIC, partition)]
        assert offset_after is not None and offset_after.offset >= position, (
            f"seed {seed}: partition {partition} was at {position}"
        )


def compare(ledger: Ledger, found: dict[tuple[str, int, int], tuple[bytes | None, bytes]], seed: int) -> None:
    lost = {
        where: value
        for where, value in ledger.records.items()
        if found.get(where, (None, b""))[1] != value and (where[0] == TOPIC or where in found)
    }
    assert not lost, (
        f"seed {seed}: {len(lost)} of {len(ledger.records)} acknowledged records are lost: {list(lost)[:5]}"
    )
    # Idempotence: a retried batch is written once, so the log holds every number exactly once.
    values = [value for where, (_, value) in found.items() if where[0] == TOPIC]
    assert len(set(values)) == len(values)
    newest: dict[bytes | None, int] = {}
    for where, (key, value) in sorted(found.items()):
        if where[0] == COMPACTED:
            newest[key] = int(value.split()[1])
    for key, number in ledger.newest.items():
        assert number <= newest.get(key, -1) <= ledger.sent[key], f"seed {seed}: the newest of {key!r} is lost"
    compacted = sum(where[0] == COMPACTED for where in ledger.records)
    assert sum(where[0] == COMPACTED for where in found) < compacted, "nothing was compacted"
