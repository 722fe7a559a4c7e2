"""librdkafka's consumers under the consumer protocol (``group.protocol=consumer``, KIP-848) against our broker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, MemberDescription, NewTopic

from tests.support.broker_process import BrokerProcess
from tests.support.group_offsets import committed_offsets
from tests.support.waiting import until

PARTITIONS = 6
RECORDS = 600
TIMEOUT = 60.0
QUICK = {
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.session.timeout.ms": "3000",
    "offsets.topic.num.partitions": "4",
}


class Member(threading.Thread):
    """A consumer that reads until it is stopped; ``leaves`` is whether it then sends a leave request."""

    def __init__(self, bootstrap: str, *topics: str, instance: str | None = None) -> None:
        super().__init__(daemon=True)
        self.records: list[tuple[int, int, bytes]] = []
        self.errors: list[KafkaError] = []
        self._stopping = threading.Event()
        static = {"group.instance.id": instance} if instance is not None else {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "g",
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 500,
                **static,
            }
        )
        self._consumer.subscribe(list(topics))
        self.start()

    def run(self) -> None:
        while not self._stopping.is_set():
            message: Message | None = self._consumer.poll(0.05)
            if message is None:
                continue
            if message.error():
                self.errors.append(message.error())
            else:
                self.records.append((message.partition(), message.offset(), message.value()))
        self._consumer.close()

    def stop(self) -> None:
        self._stopping.set()
        self.join(TIMEOUT)
        assert not self.is_alive()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data", settings=QUICK)
    process.start()
    try:
        yield process
    finally:
        process.close()


@contextmanager
def members(*started: Member) -> Iterator[tuple[Member, ...]]:
    try:
        yield started
    finally:
        for member in started:
            member.stop()


def fill(bootstrap: str, topic: str = "t", first: int = 0) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(first, first + RECORDS):
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(TIMEOUT) == 0


def create(bootstrap: str, *topics: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics]).values():
        future.result(TIMEOUT)
    return admin


def described(admin: AdminClient) -> list[MemberDescription]:
    found: list[MemberDescription] = admin.describe_consumer_groups(["g"])["g"].result(TIMEOUT).members
    return found


def shares(admin: AdminClient) -> list[int]:
    """Return the number of partitions of each member, in descending order."""
    return sorted((len(member.assignment.topic_partitions) for member in described(admin)), reverse=True)


def committed(admin: AdminClient) -> dict[int, int]:
    return {position.partition: position.offset for position in committed_offsets(admin, "g")}


def test_partitions_move_one_member_at_a_time_and_every_record_is_read_once(broker: BrokerProcess) -> None:
    admin = create(broker.bootstrap, "t")
    fill(broker.bootstrap)
    first = Member(broker.bootstrap, "t")
    until(lambda: len(first.records) == RECORDS, "the first member reads everything")
    second, third = Member(broker.bootstrap, "t"), Member(broker.bootstrap, "t")
    with members(first, second, third):
        until(lambda: shares(admin) == [2, 2, 2], "everybody has a third")
        listed = [(g.group_id, g.type.name) for g in admin.list_consumer_groups().result(TIMEOUT).valid]
        assert listed == [("g", "CONSUMER")]
        fill(broker.bootstrap, first=RECORDS)
        everything = [first, second, third]
        until(lambda: sum(len(m.records) for m in everything) >= 2 * RECORDS, "the rest is read by all")
        first.stop()
        until(lambda: shares(admin) == [3, 3], "the others take over its partitions")
    records = [record for member in everything for record in member.records]
    assert len(records) == len(set(records)) == 2 * RECORDS
    assert not any(member.errors for member in everything)
    assert committed(admin) == dict.fromkeys(range(PARTITIONS), 2 * RECORDS // PARTITIONS)


def test_a_restarted_broker_knows_the_group(broker: BrokerProcess) -> None:
    admin = create(broker.bootstrap, "t")
    with members(Member(broker.bootstrap, "t"), Member(broker.bootstrap, "t")) as both:
        until(lambda: shares(admin) == [3, 3], "both have a half")
        before = {m.member_id: m.assignment.topic_partitions for m in described(admin)}
        broker.kill()
        broker.start()
        fill(broker.bootstrap)
        until(lambda: sum(len(member.records) for member in both) >= RECORDS, "both read on")
        # Use a new client: librdkafka 2.16 drops its handle of a broker that it has lost, and an admin client that
        # found a coordinator there may wait for that handle without sending a request (its issue 5511; the same with
        # Apache Kafka).
        anew = AdminClient({"bootstrap.servers": broker.bootstrap})
        assert {m.member_id: m.assignment.topic_partitions for m in described(anew)} == before
    records = [record for member in both for record in member.records]
    assert len(records) == len(set(records)) == RECORDS


def test_a_static_member_that_returns_finds_its_partitions(broker: BrokerProcess) -> None:
    admin = create(broker.bootstrap, "t")
    with members(Member(broker.bootstrap, "t", instance="a"), Member(broker.bootstrap, "t", instance="b")) as (one, _):
        until(lambda: shares(admin) == [3, 3], "both have a half")
        before = {m.group_instance_id: m.assignment.topic_partitions for m in described(admin)}
        one.stop()
        with members(Member(broker.bootstrap, "t", instance="a")):
            until(
                lambda: {m.group_instance_id: m.assignment.topic_partitions for m in described(admin)} == before,
                "the instance has its part again",
            )


def test_a_pattern_includes_topics_that_are_created_later(broker: BrokerProcess) -> None:
    admin = create(broker.bootstrap, "t-one")
    fill(broker.bootstrap, "t-one")
    with members(Member(broker.bootstrap, "^t-.*")) as (member,):
        until(lambda: len(member.records) == RECORDS, "it reads all existing records")
        create(broker.bootstrap, "t-two")
        fill(broker.bootstrap, "t-two")
        until(lambda: len(member.records) == 2 * RECORDS, "it reads the later records")
    assert shares(admin) == []
