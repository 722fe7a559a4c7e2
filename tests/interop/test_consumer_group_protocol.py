"""Groups under the consumer protocol (KIP-848): Java's consumer with our broker, and the same groups with
Apache Kafka.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop import jvm
from tests.support.broker_process import BrokerProcess
from tests.support.group_offsets import committed_offsets, has_coordinator
from tests.support.waiting import until

pytestmark = pytest.mark.interop

TIMEOUT = 60.0
PARTITIONS = 6
RECORDS = 300
Node = Callable[[Path], AbstractContextManager[str]]


@contextmanager
def ours(directory: Path) -> Iterator[str]:
    broker = BrokerProcess(
        directory / "data",
        settings={
            "group.consumer.heartbeat.interval.ms": "200",
            "group.consumer.min.heartbeat.interval.ms": "200",
            "offsets.topic.num.partitions": "4",
        },
    )
    try:
        yield broker.start()
        assert broker.stop() == 0
    finally:
        broker.close()


@contextmanager
def apache_kafka(directory: Path) -> Iterator[str]:
    with jvm.apache_kafka(directory, group_consumer_min_heartbeat_interval_ms="200") as bootstrap:
        yield bootstrap


def fill(bootstrap: str, first: int = 0) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(first, first + RECORDS):
        producer.produce("t", str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(TIMEOUT) == 0


def static_member(bootstrap: str, instance: str, protocol: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "group.protocol": protocol,
            "group.instance.id": instance,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["t"])
    return consumer


def shares(admin: AdminClient) -> dict[str, list[int]]:
    """Return the partitions of each instance."""
    members = admin.describe_consumer_groups(["g"])["g"].result(TIMEOUT).members
    return {m.group_instance_id: sorted(p.partition for p in m.assignment.topic_partitions) for m in members}


def committed(admin: AdminClient) -> list[int]:
    return [position.offset for position in sorted(committed_offsets(admin, "g"), key=lambda p: p.partition)]


def read_together(bootstrap: str, count: int, protocols: tuple[str, str]) -> dict[str, list[int]]:
    """Let two static members read so many records, commit, and leave temporarily; return the partitions of each."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    members: list[Consumer] = []
    got = 0

    def read() -> bool:
        nonlocal got
        for member in members:
            messages = member.consume(count, 0.1)
            assert not [message.error() for message in messages if message.error()]
            got += len(messages)
        try:
            return got >= count and sorted(map(len, shares(admin).values())) == [3, 3]
        except KafkaException as error:
            if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise
            return False  # the group changed its type during the request

    for instance, protocol in zip(("a", "b"), protocols, strict=True):
        # One after the other: Kafka refuses a join that waits while its group changes the protocol, which fails here.
        members.append(static_member(bootstrap, instance, protocol))
        until(lambda: read() or bool(members[-1].assignment()), f"{instance} is in the group")
    until(read, "both members have a half and everything is read")
    before = shares(admin)
    for member in members:
        member.close()
    assert got == count
    return before


@pytest.mark.parametrize(
    ("first", "second"), [(ours, apache_kafka), (apache_kafka, ours)], ids=["ours-first", "theirs"]
)
@pytest.mark.parametrize("protocols", [("consumer", "consumer"), ("classic", "consumer")], ids=["new", "mixed"])
def test_a_group_moves_with_the_data_directory(
    first: Node, second: Node, protocols: tuple[str, str], tmp_path: Path
) -> None:
    """Its static members get their partitions again, and the committed offsets are unchanged."""
    with first(tmp_path) as bootstrap:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(TIMEOUT)
        fill(bootstrap)
        before = read_together(bootstrap, RECORDS, protocols)
    with second(tmp_path) as bootstrap:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        until(lambda: has_coordinator(admin, "g"), "the coordinator has not read its log")
        assert shares(admin) == before
        assert committed(admin) == [RECORDS // PARTITIONS] * PARTITIONS
        fill(bootstrap, first=RECORDS)
        assert read_together(bootstrap, RECORDS, protocols) == before


def test_two_java_consumers_share_a_topic_and_one_takes_over(tmp_path: Path) -> None:
    def console_consumer(bootstrap: str, output: Path) -> subprocess.Popen[bytes]:
        command = [
            "java",
            *jvm.QUICK_START,
            "-Xmx256m",
            "-cp",
            f"{jvm.jars()}/*",
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
        ]
        options = ["--bootstrap-server", bootstrap, "--topic", "t", "--group", "g", "--from-beginning"]
        with output.open("wb") as out, output.with_suffix(".err").open("wb") as error_output:
            return subprocess.Popen(
                [*command, *options, "--command-property", "group.protocol=consumer"], stdout=out, stderr=error_output
            )

    jvm.require("mvn", "java")
    outputs = [tmp_path / "one.txt", tmp_path / "two.txt"]

    def lines() -> list[bytes]:
        return [line for output in outputs for line in output.read_bytes().splitlines()]

    with ours(tmp_path) as bootstrap:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(TIMEOUT)
        fill(bootstrap)
        processes = []
        try:
            processes = [console_consumer(bootstrap, output) for output in outputs]

            def sizes() -> list[int]:
                members = admin.describe_consumer_groups(["g"])["g"].result(TIMEOUT).members
                return sorted(len(member.assignment.topic_partitions) for member in members)

            until(lambda: sizes() == [3, 3], "both have a half")
            until(lambda: len(lines()) >= RECORDS, "everything is read")
            # A member that leaves during a reconciliation logs an error: only its earlier output counts.
            assert b"ERROR" not in outputs[0].with_suffix(".err").read_bytes()
            processes[0].terminate()
            until(lambda: sizes() == [6], "the other has everything")
            fill(bootstrap, first=RECORDS)
            until(lambda: len(lines()) >= 2 * RECORDS, "it reads on")
            assert b"ERROR" not in outputs[1].with_suffix(".err").read_bytes()
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(TIMEOUT)
    assert sorted(map(int, lines())) == list(range(2 * RECORDS))


class ConsoleMember:
    """Java's console consumer in the group, under the given protocol."""

    def __init__(self, bootstrap: str, output: Path, protocol: str, *properties: str) -> None:
        self.output = output
        command = [
            "java",
            *jvm.QUICK_START,
            "-Xmx128m",
            "-cp",
            f"{jvm.jars()}/*",
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
        ]
        options = ["--bootstrap-server", bootstrap, "--topic", "t", "--group", "g", "--from-beginning"]
        for value in (f"group.protocol={protocol}", *properties):
            options += ["--command-property", value]
        with output.open("wb") as out, output.with_suffix(".err").open("wb") as error_output:
            self._process = subprocess.Popen([*command, *options], stdout=out, stderr=error_output)

    @property
    def lines(self) -> list[int]:
        """Return the values that it has read."""
        return [int(line) for line in self.output.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]

    def stop(self) -> None:
        """Stop it; it must not have reported an error before."""
        error_output = self.output.with_suffix(".err").read_bytes()
        self._process.terminate()
        self._process.wait(TIMEOUT)
        assert b"ERROR" not in error_output


def kind_and_shares(admin: AdminClient) -> tuple[str, str, list[int]]:
    """Return the group's type, its state, and the number of partitions of each member."""
    for found in admin.list_consumer_groups().result(TIMEOUT).valid:
        try:
            members = admin.describe_consumer_groups(["g"])["g"].result(TIMEOUT).members
        except KafkaException:  # the group changed its type during the request
            break
        return found.type.name, found.state.name, sorted(len(m.assignment.topic_partitions) for m in members)
    return "", "", []


@pytest.mark.parametrize("node", [ours, apache_kafka], ids=["ours", "theirs"])
def test_java_members_change_their_protocol_one_by_one_and_back(node: Node, tmp_path: Path) -> None:
    """The same group behaves the same in Apache Kafka."""
    classic = ("classic", "heartbeat.interval.ms=200", "session.timeout.ms=6000")
    started: list[ConsoleMember] = []
    running: list[ConsoleMember] = []
    written = 0

    with node(tmp_path) as bootstrap:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(TIMEOUT)

        def join(*how: str) -> None:
            started.append(ConsoleMember(bootstrap, tmp_path / f"{len(started)}.txt", *how))
            running.append(started[-1])

        def settle(kind: str, shares: list[int]) -> None:
            nonlocal written
            until(lambda: kind_and_shares(admin) == (kind, "STABLE", shares), f"a stable {kind} group of {shares}")
            fill(bootstrap, first=written)
            written += RECORDS
            until(
                lambda: {line for member in started for line in member.lines} == set(range(written)),
                "everything is read",
            )

        try:
            join(*classic)
            join(*classic)
            settle("CLASSIC", [3, 3])
            for _ in range(2):
                join("consumer")
                settle("CONSUMER", [2, 2, 2])
                running.pop(0).stop()
                settle("CONSUMER", [3, 3])
            for kind in ("CONSUMER", "CLASSIC"):
                join(*classic)
                settle("CONSUMER", [2, 2, 2])
                running.pop(0).stop()
                settle(kind, [3, 3])
        finally:
            while running:
                running.pop().stop()
        assert sum(committed(admin)) == written
