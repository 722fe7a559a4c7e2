"""The effect of compaction, as other clients see it on a broker with small segments."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from kafka import KafkaConsumer
from kafka.structs import TopicPartition as KafkaPythonPartition

from tests.support.broker_process import BrokerProcess
from tests.support.waiting import until

PATIENCE = 30
COMPACTED = {"cleanup.policy": "compact", "internal.segment.bytes": "4000", "min.cleanable.dirty.ratio": "0.01"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Run a broker that checks for dirty logs all the time."""
    process = BrokerProcess(
        tmp_path / "data",
        settings={
            "log.cleaner.backoff.ms": "50",
            "offsets.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
        },
    )
    try:
        process.start()
        yield process
    finally:
        process.close()


def create(bootstrap: str, topic: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(PATIENCE)


def alter(bootstrap: str, topic: str, **values: str) -> None:
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in values.items()]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(PATIENCE)


def produce(bootstrap: str, topic: str, items: Sequence[tuple[bytes, bytes | None]], **options: str | int) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "batch.num.messages": 3, **options}
    )
    for key, value in items:
        producer.produce(topic, value, key)
    assert producer.flush(PATIENCE) == 0


def read(bootstrap: str, topic: str, from_offset: int = 0) -> list[Message]:
    """Return every record from an offset to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found: list[Message] = []
    try:
        consumer.assign([TopicPartition(topic, 0, from_offset)])
        while True:
            message = consumer.poll(PATIENCE)
            assert message is not None
            if message.error() is not None:
                return found
            found.append(message)
    finally:
        consumer.close()


def until_few(bootstrap: str, topic: str, most: int) -> list[Message]:
    """Read until compaction has left at most so many records: there is no event for the work of another process."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = read(bootstrap, topic)
        if len(found) <= most:
            return found
        assert time.monotonic() < deadline, f"there are still {len(found)} records"
        time.sleep(0.1)


def test_confluent_kafka_and_kafka_python_see_the_last_record_of_each_key(broker: BrokerProcess) -> None:
    """This holds from deleted offsets, too, and after a restart."""
    bootstrap = broker.bootstrap
    create(bootstrap, "orders", **COMPACTED)
    items = [(b"k%d" % (number % 7), b"v%d" % number) for number in range(210)]
    for codec in ("none", "gzip", "lz4", "zstd", "snappy"):
        produce(bootstrap, "orders", items, **{"compression.type": codec})

    until_few(bootstrap, "orders", 300)
    alter(bootstrap, "orders", **{"cleanup.policy": "delete"})  # so that the log no longer changes
    found = read(bootstrap, "orders")
    assert {message.key(): message.value() for message in found} == dict(items)
    offsets = [message.offset() for message in found]
    assert offsets == sorted(set(offsets))
    assert offsets[-1] == 1049
    for start in (0, 1, 500, offsets[0] + 1, offsets[-1]):
        assert [m.offset() for m in read(bootstrap, "orders", start)] == [o for o in offsets if o >= start]

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=2000, enable_auto_commit=False)
    partition = KafkaPythonPartition("orders", 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    seen = [(record.offset, record.key, record.value) for record in consumer]
    consumer.close()
    assert seen == [(message.offset(), message.key(), message.value()) for message in found]

    assert broker.stop() == 0
    bootstrap = broker.start()
    assert [message.offset() for message in read(bootstrap, "orders")] == offsets


def test_deleted_keys_disappear_with_their_tombstones(broker: BrokerProcess) -> None:
    bootstrap = broker.bootstrap
    create(bootstrap, "orders", **COMPACTED, **{"delete.retention.ms": "100"})
    produce(bootstrap, "orders", [(b"k%d" % number, b"x" * 50) for number in range(100)])
    produce(bootstrap, "orders", [(b"k%d" % number, None) for number in range(100)])
    deadline = time.monotonic() + PATIENCE
    number = 0
    while any(message.key().startswith(b"k") for message in read(bootstrap, "orders")):
        # New dirty records trigger another pass.
        produce(bootstrap, "orders", [(b"z%d" % (number % 3), b"z" * 100) for _ in range(60)])
        number += 1
        assert time.monotonic() < deadline
    assert {message.key() for message in read(bootstrap, "orders")} == {b"z%d" % each for each in range(min(number, 3))}


def test_changed_cleanup_policy_takes_effect(broker: BrokerProcess) -> None:
    bootstrap = broker.bootstrap
    create(bootstrap, "orders", **{**COMPACTED, "cleanup.policy": "delete"})
    items = [(b"k%d" % (number % 7), b"v%d" % number) for number in range(600)]
    produce(bootstrap, "orders", items)
    assert len(read(bootstrap, "orders")) == 600
    alter(bootstrap, "orders", **{"cleanup.policy": "compact"})
    found = until_few(bootstrap, "orders", 200)
    assert {message.key(): message.value() for message in found} == dict(items)


def size_of_segments(directory: Path) -> int:
    """Return the bytes of a log's segments. A file that the cleaner removes meanwhile counts as empty."""
    found = 0
    for path in directory.glob("*.log"):
        with contextlib.suppress(FileNotFoundError):
            found += path.stat().st_size
    return found


def test_committed_offsets_are_compacted_and_survive_a_restart(broker: BrokerProcess, tmp_path: Path) -> None:
    bootstrap = broker.bootstrap
    create(bootstrap, "orders")
    produce(bootstrap, "orders", [(b"k", b"v") for _ in range(200)])
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "enable.auto.commit": False})
    consumer.assign([TopicPartition("orders", 0, 0)])
    for position in range(1, 201):
        if position == 2:
            alter(bootstrap, "__consumer_offsets", **COMPACTED)
        consumer.commit(offsets=[TopicPartition("orders", 0, position)], asynchronous=False)
    consumer.close()
    directory = tmp_path / "data" / "__consumer_offsets-0"
    # 200 commits are more than 20 kB; the remaining records fit into the active segment and a small one.
    until(lambda: size_of_segments(directory) <= 8000, "the committed offsets were not compacted", PATIENCE)
    assert broker.stop() == 0
    bootstrap = broker.start()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})
    (committed,) = consumer.committed([TopicPartition("orders", 0)], PATIENCE)
    consumer.close()
    assert committed.offset == 200


def test_broker_that_is_killed_while_it_cleans_has_the_last_record_of_each_key(broker: BrokerProcess) -> None:
    bootstrap = broker.bootstrap
    create(bootstrap, "orders", **COMPACTED)
    last: dict[bytes, bytes] = {}
    for round_number in range(2):
        items = [(b"k%d" % (n % 50), b"%d-%d" % (round_number, n)) for n in range(600)]
        produce(bootstrap, "orders", items)
        last |= dict(items)
        broker.kill()
        bootstrap = broker.start()
        found = read(bootstrap, "orders")
        assert {message.key(): message.value() for message in found} == last
