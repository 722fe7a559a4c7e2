"""A group whose members change from the classic to the consumer protocol one by one, and back, while they read
(KIP-848).

The members are librdkafka's; the broker runs in its own process.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

import triokafka
from tests.integration.test_consumer_mixed_groups import Peer, aiokafka, kafka_python
from tests.support.broker_process import BrokerProcess
from tests.support.group_offsets import committed_offsets

PARTITIONS = 6
TIMEOUT = 60.0
QUICK = {
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
}
CLASSIC = {"group.protocol": "classic", "heartbeat.interval.ms": 100, "session.timeout.ms": 6_000}
CONSUMER: dict[str, Any] = {"group.protocol": "consumer"}


class Member(threading.Thread):
    """A consumer that reads until it is stopped, and commits the offsets that it has read."""

    def __init__(self, bootstrap: str, name: str, protocol: dict[str, object], instance: str | None) -> None:
        super().__init__(daemon=True)
        self.records: list[tuple[int, int]] = []
        self.errors: list[KafkaError] = []
        self._stopping = threading.Event()
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": name,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 100,
                **({"group.instance.id": instance} if instance is not None else {}),
                **protocol,
            }
        )
        self.consumer.subscribe([name])
        self.start()

    def run(self) -> None:
        while not self._stopping.is_set():
            message: Message | None = self.consumer.poll(0.05)
            if message is None:
                continue
            if message.error():
                self.errors.append(message.error())
            else:
                self.records.append((message.partition(), message.offset()))
        self.consumer.close()

    def stop(self) -> None:
        self._stopping.set()
        self.join(TIMEOUT)
        assert not self.is_alive()


class Feed(threading.Thread):
    """Writes a record to every partition in turn until it is stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.written = 0
        self._topic = topic
        self._stopping = threading.Event()
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self.start()

    def run(self) -> None:
        while not self._stopping.wait(0.01):
            for partition in range(PARTITIONS):
                self._producer.produce(self._topic, b"x", partition=partition)
            self.written += 1
        assert self._producer.flush(TIMEOUT) == 0

    def stop(self) -> None:
        self._stopping.set()
        self.join(TIMEOUT)
        assert not self.is_alive()


class Group:
    """The group as an admin client sees it, and its members one after the other; its topic has the same name."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(TIMEOUT)
        self.members: list[Member] = []
        self.gone: list[Member] = []

    @property
    def kind(self) -> tuple[str, str]:
        """Return type and state; empty if the group does not exist."""
        for found in self.admin.list_consumer_groups().result(TIMEOUT).valid:
            if found.group_id == self.name:
                return found.type.name, found.state.name
        return "", ""

    def shares(self) -> list[int]:
        """Return the number of partitions of each member."""
        try:
            found = self.admin.describe_consumer_groups([self.name])[self.name].result(TIMEOUT).members
        except KafkaException:  # the group changed its type during the request
            return []
        return sorted(len(member.assignment.topic_partitions) for member in found)

    def await_kind(self, kind: str, shares: list[int]) -> None:
        """Wait until the group is stable, and its members have these numbers of partitions."""
        self.until(lambda: self.kind == (kind, "STABLE") and self.shares() == shares, f"a stable {kind} group")

    def until(self, holds: Callable[[], bool], failure: str) -> None:
        """Repeat a check until it holds: librdkafka has no event for the changes of other members."""
        give_up_at = time.monotonic() + TIMEOUT
        while not holds():
            assert time.monotonic() < give_up_at, (failure, self.kind, self.shares())
            time.sleep(0.05)

    def start(self, protocol: dict[str, object], instance: str | None = None) -> None:
        self.members.append(Member(self.bootstrap, self.name, protocol, instance))

    def stop_oldest(self) -> None:
        member = self.members.pop(0)
        member.stop()
        self.gone.append(member)

    def committed(self) -> dict[int, int]:
        return {position.partition: position.offset for position in committed_offsets(self.admin, self.name)}

    def close(self) -> None:
        while self.members:
            self.stop_oldest()


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings=QUICK)
    try:
        yield process.start()
    finally:
        process.close()


@pytest.fixture
def group(bootstrap: str, request: pytest.FixtureRequest) -> Iterator[Group]:
    found = Group(bootstrap, re.sub(r"\W", ".", request.node.name))
    try:
        yield found
    finally:
        found.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_members_change_their_protocol_one_by_one_and_back_and_miss_no_record(group: Group, strategy: str) -> None:
    classic = {**CLASSIC, "partition.assignment.strategy": strategy}
    group.start(classic)
    group.start(classic)
    group.await_kind("CLASSIC", [3, 3])
    feed = Feed(group.bootstrap, group.name)
    try:
        for expected in ("CONSUMER", "CONSUMER"):
            group.start(CONSUMER)
            group.await_kind(expected, [2, 2, 2])
            group.stop_oldest()
            group.await_kind(expected, [3, 3])
        for expected in ("CONSUMER", "CLASSIC"):
            group.start(classic)
            group.await_kind("CONSUMER", [2, 2, 2])
            group.stop_oldest()
            group.await_kind(expected, [3, 3])
    finally:
        feed.stop()
    wanted = {(partition, offset) for partition in range(PARTITIONS) for offset in range(feed.written)}
    everybody = [*group.members, *group.gone]
    group.until(lambda: {record for member in everybody for record in member.records} == wanted, "all is read")
    group.until(lambda: group.committed() == dict.fromkeys(range(PARTITIONS), feed.written), "all is committed")
    assert not any(member.errors for member in everybody)


def test_static_members_retain_their_partitions_when_they_change_their_protocol(group: Group) -> None:
    for instance in ("a", "b"):
        group.start(CLASSIC, instance)
    group.await_kind("CLASSIC", [3, 3])
    feed = Feed(group.bootstrap, group.name)
    try:
        for kinds, protocol in ((("CONSUMER", "CONSUMER"), CONSUMER), (("CONSUMER", "CLASSIC"), CLASSIC)):
            for instance, kind in zip(("a", "b"), kinds, strict=True):
                group.stop_oldest()
                group.start(protocol, instance)
                group.await_kind(kind, [3, 3])
    finally:
        feed.stop()
    group.until(lambda: group.committed() == dict.fromkeys(range(PARTITIONS), feed.written), "all is committed")
    assert not any(member.errors for member in [*group.members, *group.gone])


def ours(bootstrap: str, topic: str, group: str, strategy: str, protocol: str = "classic") -> Callable[[Peer], None]:
    settings: dict[str, Any] = {"group_protocol": "consumer"}
    if protocol == "classic":
        settings = {
            "partition_assignment_strategy": (strategy,),
            "session_timeout_ms": 6_000,
            "heartbeat_interval_ms": 100,
        }

    async def main(peer: Peer) -> None:
        async with triokafka.Consumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=100,
            **settings,
        ) as consumer:
            while not peer.stop.is_set():
                for records in (await consumer.poll(timeout_ms=50)).values():
                    for record in records:
                        peer.seen.append((record.partition, record.offset))
                peer.assigned = len(consumer.assignment())

    return lambda peer: trio.run(main, peer)


@pytest.mark.parametrize(
    ("client", "strategy"),
    [
        (ours, "range"),
        (ours, "cooperative-sticky"),
        (kafka_python, "range"),
        (kafka_python, "sticky"),
        (aiokafka, "range"),
        (aiokafka, "sticky"),
    ],
)
def test_classic_members_of_every_client_share_partitions_with_consumer_members(
    group: Group, client: Callable[..., Callable[[Peer], None]], strategy: str
) -> None:
    """They join before the first consumer member, and leave after the last one."""
    peers = [Peer(client(group.bootstrap, group.name, group.name, strategy)) for _ in range(2)]
    feed = Feed(group.bootstrap, group.name)
    try:
        group.await_kind("CLASSIC", [3, 3])
        group.start(CONSUMER)
        group.await_kind("CONSUMER", [2, 2, 2])
        group.until(lambda: sorted(peer.assigned for peer in peers) == [2, 2], "both know their part")
        group.stop_oldest()
        group.await_kind("CLASSIC", [3, 3])
        group.until(lambda: sorted(peer.assigned for peer in peers) == [3, 3], "both know their part")
        feed.stop()
        wanted = {(partition, offset) for partition in range(PARTITIONS) for offset in range(feed.written)}

        def seen() -> set[tuple[int, int]]:
            return {record for peer in peers for record in peer.seen} | set(group.gone[0].records)

        group.until(lambda: seen() == wanted, "all is read")
    finally:
        feed.stop()
        for peer in peers:
            peer.end()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_our_own_members_change_their_protocol_one_by_one_and_back(group: Group, strategy: str) -> None:
    peers: list[Peer] = []
    gone: list[Peer] = []

    def start(protocol: str) -> None:
        peers.append(Peer(ours(group.bootstrap, group.name, group.name, strategy, protocol)))

    def stop_oldest() -> None:
        gone.append(peers.pop(0))
        gone[-1].end()

    start("classic")
    start("classic")
    feed = Feed(group.bootstrap, group.name)
    try:
        group.await_kind("CLASSIC", [3, 3])
        for protocol, kinds in (("consumer", ("CONSUMER", "CONSUMER")), ("classic", ("CONSUMER", "CLASSIC"))):
            for kind in kinds:
                start(protocol)
                group.await_kind("CONSUMER", [2, 2, 2])
                stop_oldest()
                group.await_kind(kind, [3, 3])
        feed.stop()
        wanted = {(partition, offset) for partition in range(PARTITIONS) for offset in range(feed.written)}
        group.until(lambda: {record for peer in [*peers, *gone] for record in peer.seen} == wanted, "all is read")
        group.until(lambda: group.committed() == dict.fromkeys(range(PARTITIONS), feed.written), "all is committed")
    finally:
        feed.stop()
        while peers:
            stop_oldest()
