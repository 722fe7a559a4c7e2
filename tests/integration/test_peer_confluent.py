"""confluent-kafka (librdkafka) does a service's work with the broker."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

FIRST_TIMESTAMP = 1_700_000_000_000
PATIENCE = 60


def create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(10)


def produce(bootstrap: str, topic: str, count: int, **options: object) -> None:
    delivered: list[tuple[int, int]] = []
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5}
        | {key.replace("_", "."): value for key, value in options.items()}
    )

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        delivered.append((message.partition(), message.offset()))

    for i in range(count):
        producer.produce(
            topic,
            b"value-%d" % i,
            b"key-%d" % i,
            partition=i % 4,
            timestamp=FIRST_TIMESTAMP + i,
            headers=[("n", b"%d" % i)],
            on_delivery=on_delivery,
        )
    assert producer.flush(PATIENCE) == 0
    assert len(set(delivered)) == count


def until(condition: Callable[[], bool], step: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come to hold"
        step()


def consumer(bootstrap: str, group: str, **options: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "check.crcs": True,
            "heartbeat.interval.ms": 200,
        }
        | {key.replace("_", "."): value for key, value in options.items()}
    )


def records(client: Consumer) -> list[Message]:
    found = client.consume(500, 0.2)
    for message in found:
        assert message.error() is None, message.error()
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_records_come_back_as_they_were_sent(
    bootstrap: str, topic: str, group: str, codec: str, idempotent: bool
) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, 1000, compression_type=codec, enable_idempotence=idempotent)
    client = consumer(bootstrap, group)
    client.assign([TopicPartition(topic, partition, 0) for partition in range(4)])
    found: list[Message] = []
    until(lambda: len(found) >= 1000, lambda: found.extend(records(client)))
    client.close()
    assert sorted(
        (m.partition(), m.offset(), m.key(), m.value(), m.timestamp(), tuple(m.headers())) for m in found
    ) == (
        sorted(
            (
                i % 4,
                i // 4,
                b"key-%d" % i,
                b"value-%d" % i,
                (TIMESTAMP_CREATE_TIME, FIRST_TIMESTAMP + i),
                (("n", b"%d" % i),),
            )
            for i in range(1000)
        )
    )


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_a_group_rebalances_commits_and_resumes(bootstrap: str, topic: str, group: str, strategy: str) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, 400)
    seen: set[tuple[int, int]] = set()

    def member() -> Consumer:
        client = consumer(bootstrap, group, partition_assignment_strategy=strategy)
        client.subscribe([topic])
        return client

    def poll(*clients: Consumer) -> None:
        for client in clients:
            seen.update((message.partition(), message.offset()) for message in records(client))

    first = member()
    until(lambda: len(first.assignment()) == 4 and len(seen) == 400, lambda: poll(first))
    first.commit(asynchronous=False)
    second = member()
    until(
        lambda: len(first.assignment()) == 2 and len(second.assignment()) == 2,
        lambda: poll(first, second),
    )
    owned = [{(tp.topic, tp.partition) for tp in client.assignment()} for client in (first, second)]
    assert owned[0] | owned[1] == {(topic, partition) for partition in range(4)}
    second.close()
    first.close()

    produce(bootstrap, topic, 4)
    third = member()
    again: list[tuple[int, int]] = []
    until(lambda: len(again) >= 4, lambda: again.extend((m.partition(), m.offset()) for m in records(third)))
    assert sorted(again) == [(partition, 100) for partition in range(4)]
    third.commit(offsets=[TopicPartition(topic, 0, 42, "a note")], asynchronous=False)
    (committed,) = third.committed([TopicPartition(topic, 0)], 10)
    assert (committed.offset, committed.metadata) == (42, "a note")
    third.close()


def test_offsets_are_found_by_time(bootstrap: str, topic: str, group: str) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, 400)
    client = consumer(bootstrap, group)
    (found,) = client.offsets_for_times([TopicPartition(topic, 1, FIRST_TIMESTAMP + 200)], 10)
    assert found.offset == 50
    (none,) = client.offsets_for_times([TopicPartition(topic, 1, FIRST_TIMESTAMP + 10_000)], 10)
    assert none.offset == -1
    assert client.get_watermark_offsets(TopicPartition(topic, 1), 10) == (0, 100)
    client.close()


def test_topics_are_created_altered_and_deleted(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1, config={"retention.ms": "3600000"})])[topic].result(10)
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(10)
    assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(10)
    until(lambda: len(admin.list_topics(topic, 10).topics[topic].partitions) == 5, lambda: None)
    resource = ConfigResource(
        ConfigResource.Type.TOPIC,
        topic,
        incremental_configs=[ConfigEntry("max.message.bytes", "123456", incremental_operation=AlterConfigOpType.SET)],
    )
    admin.incremental_alter_configs([resource])[resource].result(10)
    asked = ConfigResource(ConfigResource.Type.TOPIC, topic)
    until(
        lambda: admin.describe_configs([asked])[asked].result(10)["max.message.bytes"].value == "123456",
        lambda: None,
    )
    assert admin.describe_configs([asked])[asked].result(10)["retention.ms"].value == "3600000"
    admin.delete_topics([topic])[topic].result(10)
    until(lambda: topic not in admin.list_topics(timeout=10).topics, lambda: None)
    with pytest.raises(KafkaException) as refused:
        admin.delete_topics([topic])[topic].result(10)
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
