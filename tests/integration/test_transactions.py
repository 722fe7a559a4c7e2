"""Transactional producers and read_committed consumers of other projects on our broker."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import TopicPartition as KafkaPythonTopicPartition

from tests.support.broker_process import broker_process

SECONDS = 30.0


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with broker_process() as address:
        yield address


@pytest.fixture
def topic() -> str:
    return f"tx-{uuid.uuid4().hex[:8]}"


def confluent_producer(bootstrap: str, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 1})
    producer.init_transactions(SECONDS)
    return producer


def confluent_values(bootstrap: str, topic: str, count: int, isolation: str = "read_committed") -> list[bytes]:
    """Return the first ``count`` values, and any that follow immediately."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    try:
        while True:
            message = consumer.poll(SECONDS)
            assert message is not None, f"nothing within {SECONDS} seconds after {len(values)} records"
            if message.error() is None:
                values.append(message.value())
            elif len(values) >= count:
                return values
    finally:
        consumer.close()


def test_librdkafka_commits_and_aborts(bootstrap: str, topic: str) -> None:
    producer = confluent_producer(bootstrap, topic)
    for number in range(6):
        producer.begin_transaction()
        for i in range(10):
            producer.produce(topic, f"{number}-{i}".encode(), partition=0)
        if number % 2:
            producer.flush()
            producer.abort_transaction(SECONDS)
        else:
            producer.commit_transaction(SECONDS)
    wanted = [f"{number}-{i}".encode() for number in (0, 2, 4) for i in range(10)]
    assert confluent_values(bootstrap, topic, 30) == wanted
    assert len(confluent_values(bootstrap, topic, 60, "read_uncommitted")) == 60


def test_open_transaction_hides_later_records(bootstrap: str, topic: str) -> None:
    first, second = confluent_producer(bootstrap, f"{topic}-1"), confluent_producer(bootstrap, f"{topic}-2")
    first.begin_transaction()
    first.produce(topic, b"open", partition=0)
    first.flush()
    second.begin_transaction()
    second.produce(topic, b"done", partition=0)
    second.commit_transaction(SECONDS)
    assert confluent_values(bootstrap, topic, 0) == []
    first.commit_transaction(SECONDS)
    assert confluent_values(bootstrap, topic, 2) == [b"open", b"done"]


def test_new_producer_of_a_transactional_id_fences_the_old_one(bootstrap: str, topic: str) -> None:
    zombie = confluent_producer(bootstrap, topic)
    zombie.begin_transaction()
    zombie.produce(topic, b"zombie", partition=0)
    zombie.flush()
    successor = confluent_producer(bootstrap, topic)
    with pytest.raises(KafkaException) as raised:
        zombie.commit_transaction(SECONDS)
    assert raised.value.args[0].fatal()
    successor.begin_transaction()
    successor.produce(topic, b"successor", partition=0)
    successor.commit_transaction(SECONDS)
    assert confluent_values(bootstrap, topic, 1) == [b"successor"]


def test_offsets_take_effect_with_the_transaction(bootstrap: str, topic: str) -> None:
    producer = confluent_producer(bootstrap, topic)
    group = uuid.uuid4().hex
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_uncommitted"})
    position = TopicPartition(topic, 0, 5)
    producer.begin_transaction()
    producer.produce(topic, b"out", partition=0)
    producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), SECONDS)
    assert [one.offset for one in consumer.committed([TopicPartition(topic, 0)], SECONDS)] == [-1001]
    producer.abort_transaction(SECONDS)
    assert [one.offset for one in consumer.committed([TopicPartition(topic, 0)], SECONDS)] == [-1001]
    producer.begin_transaction()
    producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), SECONDS)
    producer.commit_transaction(SECONDS)
    stable = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_committed"})
    assert [one.offset for one in stable.committed([TopicPartition(topic, 0)], SECONDS)] == [5]
    consumer.close()
    stable.close()


def test_kafka_python_commits_and_aborts(bootstrap: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
    producer.init_transactions()
    for value, commits in ((b"a", True), (b"b", False), (b"c", True)):
        producer.begin_transaction()
        producer.send(topic, value, partition=0).get(timeout=SECONDS)
        if commits:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed", consumer_timeout_ms=10_000)
    partition = KafkaPythonTopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    found = [next(consumer).value for _ in range(2)]
    consumer.close()
    assert found == [b"a", b"c"]


def test_aiokafka_commits_and_aborts(bootstrap: str, topic: str) -> None:
    async def play() -> list[bytes]:
        async with (
            asyncio.timeout(SECONDS),
            AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic) as producer,
        ):
            for value, commits in ((b"a", True), (b"b", False), (b"c", True)):
                await producer.begin_transaction()
                await producer.send_and_wait(topic, value, partition=0)
                if commits:
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()
            consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed")
            await consumer.start()
            try:
                partition = AioTopicPartition(topic, 0)
                consumer.assign([partition])
                consumer.seek(partition, 0)
                return [(await consumer.getone()).value for _ in range(2)]
            finally:
                await consumer.stop()

    assert asyncio.run(play()) == [b"a", b"c"]
