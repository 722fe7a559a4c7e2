"""kafka-python 3 does a service's work with the broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError
from kafka.structs import OffsetAndMetadata

FIRST_TIMESTAMP = 1_700_000_000_000
PATIENCE = 60


def create(bootstrap: str, topic: str, partitions: int = 4) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(topic, partitions, 1)])
    admin.close()


def produce(bootstrap: str, topic: str, count: int, *, partitions: int = 4, **options: object) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=5, **options)
    sent = [
        producer.send(
            topic,
            b"value-%d" % i,
            key=b"key-%d" % i,
            partition=i % partitions,
            timestamp_ms=FIRST_TIMESTAMP + i,
            headers=[("n", b"%d" % i)],
        )
        for i in range(count)
    ]
    producer.flush()
    offsets = [future.get(10).offset for future in sent]
    producer.close()
    assert sorted(offsets[0::partitions]) == offsets[0::partitions]


def until(condition: Callable[[], bool], step: Callable[[], object]) -> None:
    """Take steps until the condition holds; the steps themselves wait for the broker."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come to hold"
        step()


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_as_they_were_sent(bootstrap: str, topic: str, codec: str | None) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, 1000, compression_type=codec)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", check_crcs=True)
    consumer.assign([TopicPartition(topic, partition) for partition in range(4)])
    records: list[object] = []
    until(lambda: len(records) >= 1000, lambda: [records.extend(some) for some in consumer.poll(500).values()])
    consumer.close()
    assert sorted((r.partition, r.offset, r.key, r.value, r.timestamp, tuple(r.headers)) for r in records) == sorted(  # type: ignore[attr-defined]
        (i % 4, i // 4, b"key-%d" % i, b"value-%d" % i, FIRST_TIMESTAMP + i, (("n", b"%d" % i),)) for i in range(1000)
    )


def test_a_group_rebalances_commits_and_resumes(bootstrap: str, topic: str, group: str) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, 400)

    def member() -> KafkaConsumer:
        return KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=200,
            metadata_max_age_ms=1000,
        )

    first = member()
    seen: set[tuple[int, int]] = set()

    def poll(consumer: KafkaConsumer) -> None:
        for partition, records in consumer.poll(100).items():
            seen.update((partition.partition, record.offset) for record in records)

    until(lambda: len(first.assignment()) == 4 and len(seen) == 400, lambda: poll(first))
    first.commit()
    second = member()
    shares: dict[str, set[TopicPartition]] = {}
    settled, stop = threading.Event(), threading.Event()

    def run_second() -> None:
        while not stop.is_set():
            second.poll(100)
            shares["second"] = second.assignment()
            if len(shares["second"]) == 2:
                settled.set()

    thread = threading.Thread(target=run_second)
    thread.start()
    try:
        until(lambda: settled.is_set() and len(first.assignment()) == 2, lambda: poll(first))
        assert first.assignment().isdisjoint(shares["second"])
        assert first.assignment() | shares["second"] == {TopicPartition(topic, p) for p in range(4)}
    finally:
        stop.set()
        thread.join()
        second.close()
        first.close()

    produce(bootstrap, topic, 4)
    third = member()
    again: list[tuple[int, int]] = []
    until(
        lambda: len(again) >= 4,
        lambda: [again.extend((p.partition, r.offset) for r in some) for p, some in third.poll(100).items()],
    )
    third.commit({TopicPartition(topic, 0): OffsetAndMetadata(42, "a note", -1)})
    assert third.committed(TopicPartition(topic, 0)) == 42
    third.close()
    assert sorted(again) == [(partition, 100) for partition in range(4)]


def test_offsets_are_found_by_time(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, 400)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    partition = TopicPartition(topic, 1)
    found = consumer.offsets_for_times({partition: FIRST_TIMESTAMP + 200})[partition]
    assert (found.offset, found.timestamp) == (50, FIRST_TIMESTAMP + 201)
    assert consumer.offsets_for_times({partition: FIRST_TIMESTAMP + 10_000})[partition] is None
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 100}
    consumer.close()


def test_topics_are_created_altered_and_deleted(bootstrap: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(topic, 2, 1, topic_configs={"retention.ms": "3600000"})])
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(topic, 2, 1)])
    admin.create_partitions({topic: NewPartitions(5)})
    until(lambda: len(admin.describe_topics([topic])[0]["partitions"]) == 5, lambda: None)
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"max.message.bytes": "123456"})
    admin.alter_configs([resource])
    described = str(admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)]))
    assert "123456" in described
    assert topic in admin.list_topics()
    admin.delete_topics([topic])
    until(lambda: topic not in admin.list_topics(), lambda: None)
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([topic])
    admin.close()
