"""One data directory, served in turn by Apache Kafka and by our broker: topics, ids, records and offsets are
unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec

from tests.interop import jvm
from tests.support.broker_process import BrokerProcess
from tests.support.group_offsets import committed_offsets

pytestmark = pytest.mark.interop

TIMEOUT = 30
PARTITIONS = 3


@contextmanager
def our_broker(directory: Path, **settings: str) -> Iterator[str]:
    """Run our broker in its own process, and stop it cleanly; ``settings`` are its properties, with ``_`` for ``.``."""
    broker = BrokerProcess(directory, settings={name.replace("_", "."): text for name, text in settings.items()})
    try:
        yield broker.start()
        assert broker.stop() == 0
    finally:
        broker.close()


def create(bootstrap: str, name: str) -> None:
    topic = NewTopic(name, PARTITIONS, 1, config={"retention.ms": "-1"})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([topic])[name].result(TIMEOUT)


def produce(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert producer.flush(TIMEOUT) == 0


def consume_and_commit(bootstrap: str, topic: str, count: int) -> None:
    """Read the next ``count`` records as a group, and commit the offset behind them."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        messages: list[Any] = []
        while len(messages) < count:
            found = consumer.consume(count - len(messages), TIMEOUT)
            assert found, f"only {len(messages)} of {count} records arrived"
            messages += found
        assert all(message.error() is None for message in messages)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def records_of(bootstrap: str, topic: str, count: int) -> set[bytes | str | None]:
    """Return the values of ``count`` records over all partitions; wait until the partitions have leaders again."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.auto.commit": False})
    values: set[bytes | str | None] = set()
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        while len(values) < count:
            found = consumer.consume(count - len(values), TIMEOUT)
            assert found, f"only {len(values)} of {count} records arrived"
            values |= {message.value() for message in found if message.error() is None}
    finally:
        consumer.close()
    return values


def described(bootstrap: str, topic: str) -> dict[str, object]:
    """Return the description that must be equal on both brokers. The admin client retries while a broker starts."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (description,) = admin.describe_topics(TopicCollection([topic])).values()
    found = description.result(TIMEOUT)
    latest = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(PARTITIONS)}
    ends = {partition.partition: end.result(TIMEOUT).offset for partition, end in admin.list_offsets(latest).items()}
    committed = committed_offsets(admin, "readers")
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    configs = admin.describe_configs([resource])[resource].result(TIMEOUT)
    return {
        "cluster": admin.describe_cluster().result(TIMEOUT).cluster_id,
        "id": str(found.topic_id),
        "partitions": [(partition.id, partition.leader.id) for partition in found.partitions],
        "retention": configs["retention.ms"].value,
        "committed": {(partition.topic, partition.partition): partition.offset for partition in committed},
        "ends": ends,
    }


def numbers(count: int) -> set[bytes]:
    return {b"%d" % number for number in range(count)}


def test_directory_of_apache_kafka_is_served_by_our_broker_and_again_by_apache_kafka(tmp_path: Path) -> None:
    jvm.require("mvn", "java")
    with jvm.apache_kafka(tmp_path) as bootstrap:
        create(bootstrap, "theirs")
        produce(bootstrap, "theirs", 100)
        consume_and_commit(bootstrap, "theirs", 40)
        before = described(bootstrap, "theirs")
    with our_broker(tmp_path / "data") as bootstrap:
        assert records_of(bootstrap, "theirs", 100) == numbers(100)
        assert described(bootstrap, "theirs") == before
        create(bootstrap, "ours")
        produce(bootstrap, "ours", 10)
        consume_and_commit(bootstrap, "theirs", 60)
        after = [described(bootstrap, topic) for topic in ("theirs", "ours")]
    with jvm.apache_kafka(tmp_path) as bootstrap:
        assert records_of(bootstrap, "theirs", 100) == numbers(100)
        assert records_of(bootstrap, "ours", 10) == numbers(10)
        assert [described(bootstrap, topic) for topic in ("theirs", "ours")] == after


def test_directory_of_our_broker_is_served_by_apache_kafka_and_again_by_our_broker(tmp_path: Path) -> None:
    jvm.require("mvn", "java")
    with our_broker(tmp_path / "data") as bootstrap:
        create(bootstrap, "ours")
        produce(bootstrap, "ours", 100)
        consume_and_commit(bootstrap, "ours", 40)
        before = described(bootstrap, "ours")
    with jvm.apache_kafka(tmp_path) as bootstrap:
        assert records_of(bootstrap, "ours", 100) == numbers(100)
        assert described(bootstrap, "ours") == before
        create(bootstrap, "theirs")
        produce(bootstrap, "theirs", 10)
        consume_and_commit(bootstrap, "ours", 60)
        after = [described(bootstrap, topic) for topic in ("ours", "theirs")]
    with our_broker(tmp_path / "data") as bootstrap:
        assert records_of(bootstrap, "theirs", 10) == numbers(10)
        assert [described(bootstrap, topic) for topic in ("ours", "theirs")] == after


def test_metadata_log_that_starts_with_a_snapshot_is_read_by_both(tmp_path: Path) -> None:
    """Each broker writes snapshots often, and drops the log before them; then the other one continues (KIP-630)."""
    jvm.require("mvn", "java")
    small: dict[str, Any] = {
        "metadata_log_max_record_bytes_between_snapshots": "500",
        "metadata_max_retention_bytes": "0",
        "metadata_max_retention_ms": "1",
        "metadata_log_segment_ms": "100",
    }
    metadata = tmp_path / "data" / "__cluster_metadata-0"

    def snapshots() -> list[str]:
        return sorted(path.name for path in metadata.glob("*.checkpoint") if path.name > "0" * 20 + "-1")

    with our_broker(tmp_path / "data", **small) as bootstrap:
        for number in range(10):
            create(bootstrap, f"ours-{number}")
        produce(bootstrap, "ours-0", 30)
        consume_and_commit(bootstrap, "ours-0", 30)
        before = described(bootstrap, "ours-0")
    ours = snapshots()
    assert len(ours) == 1
    # The log has no record before the snapshot.
    (first,) = sorted(metadata.glob("*.log"))[:1]
    assert 0 < int(first.stem) <= int(ours[0][:20])
    with jvm.apache_kafka(tmp_path, **small) as bootstrap:
        assert records_of(bootstrap, "ours-0", 30) == numbers(30)
        assert described(bootstrap, "ours-0") == before
        for number in range(10):
            create(bootstrap, f"theirs-{number}")
        produce(bootstrap, "theirs-9", 30)
        consume_and_commit(bootstrap, "theirs-9", 30)
        after = [described(bootstrap, topic) for topic in ("ours-9", "theirs-9")]
    assert snapshots()[-1] > ours[-1]
    with our_broker(tmp_path / "data") as bootstrap:
        assert [described(bootstrap, topic) for topic in ("ours-9", "theirs-9")] == after
        assert records_of(bootstrap, "theirs-9", 30) == numbers(30)
