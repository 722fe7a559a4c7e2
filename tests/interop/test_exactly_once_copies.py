"""Two programs copy a topic in transactions of 750 records, while they and the brokers are killed: each record once.

The experiment of KIP-98's system tests, with triokafka's client and Kafka's own on clusters of three nodes of both.
A failure prints the seed, which repeats the order of the kills.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.interop import jvm
from tests.interop.mixed_cluster import Member, MixedCluster, mixed_cluster
from tests.support.transactional_drivers import read

pytestmark = [pytest.mark.interop, pytest.mark.timeout(0)]

PARTITIONS = 4
BATCH = 750
STALL = 120.0
"""Seconds without a committed transaction after which the copying counts as stalled."""
SOURCE, TARGET, GROUP = "source", "target", "copiers"
Command = Callable[[], list[str]]


def triokafka_copier() -> list[str]:
    """How a copier with triokafka's clients is started."""
    return [sys.executable, "-m", "tests.interop.copier"]


def java_copier() -> list[str]:
    """How one with Kafka's clients is started."""
    return ["java", *jvm.QUICK_START, "-Xmx192m", "-cp", jvm.compiled(), "TransactionalCopier"]


class Copier:
    """One copying program with a transactional id of its own; a new process continues where the last one ended."""

    def __init__(self, command: list[str], bootstrap: str, name: str, log: Path) -> None:
        self._command = [*command, bootstrap, SOURCE, TARGET, GROUP, name, str(BATCH)]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def keep_running(self) -> None:
        """Start a process if none runs: a program also ends by itself, when it cannot reach the cluster for long."""
        if self._process is not None and self._process.poll() is None:
            return
        self.starts += 1
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=output)

    def kill(self) -> None:
        """End its process at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Progress:
    """How many records the committed transactions have copied, by the offsets that the group has committed."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "log_level": 0})
        self._last = 0

    def wait_for(self, count: int, copiers: list[Copier]) -> None:
        """Wait until so many are copied; restarts copiers that ended."""
        progressed = time.monotonic()
        while True:
            for copier in copiers:
                copier.keep_running()
            try:
                found = self._consumer.committed([TopicPartition(SOURCE, p) for p in range(PARTITIONS)], 10)
                copied = sum(max(0, one.offset) for one in found)
            except Exception:  # a coordinator moves, or a transaction is being completed
                copied = self._last
            if copied > self._last:
                self._last, progressed = copied, time.monotonic()
            if copied >= count:
                return
            assert time.monotonic() - progressed < STALL, f"{copied} records copied, and none more for {STALL:.0f} s"
            time.sleep(0.1)  # nothing tells when a group commits

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()


def fill(bootstrap: str, count: int) -> None:
    """Write the numbers to the source, evenly over its partitions."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20, "log_level": 0})
    for number in range(count):
        producer.produce(SOURCE, b"%d" % number, partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.flush(60)
    assert producer.flush(60) == 0


def kill_one(cluster: MixedCluster, copiers: list[Copier], chance: random.Random, *, broker: bool) -> None:
    """Kill a copier, or a node, which is started again; waits until it listens."""
    if not broker:
        chance.choice(copiers).kill()
        return
    node = cluster.nodes[chance.choice(sorted(cluster.nodes))]
    node.end(chance.choice((signal.SIGKILL, signal.SIGTERM)))
    node.start()
    node.wait_until_listening()


def copy_through_kills(tmp_path: Path, command: Command, *, kafka: bool, count: int, kills: int) -> None:
    """Copy ``count`` records while something is killed after every ``count / (kills + 1)`` of them."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    members = [Member(number, kafka=kafka) for number in (1, 2, 3)]
    with mixed_cluster(tmp_path, members) as cluster:
        cluster.create_topic(SOURCE, PARTITIONS, min_insync_replicas="2")
        cluster.create_topic(TARGET, PARTITIONS, min_insync_replicas="2")
        fill(cluster.bootstrap, count)
        copiers = [
            Copier(command(), cluster.bootstrap, f"copier-{number}", tmp_path / f"copier-{number}.log")
            for number in range(2)
        ]
        progress = Progress(cluster.bootstrap)
        try:
            for number in range(1, kills + 1):
                progress.wait_for(count * number // (kills + 1), copiers)
                kill_one(cluster, copiers, chance, broker=number % 2 == 0)
            progress.wait_for(count, copiers)
        finally:
            progress.close()
            for copier in copiers:
                copier.kill()
        print(f"the copiers were started {sum(copier.starts for copier in copiers)} times")
        found = Counter(read(cluster.bootstrap, TARGET, PARTITIONS))
        expected = Counter(b"%d" % number for number in range(count))
        assert found == expected, (
            f"{sum((found - expected).values())} too many, {sum((expected - found).values())} missing"
        )


PAIRS = pytest.mark.parametrize(
    ("command", "kafka"),
    [
        pytest.param(triokafka_copier, False, id="triokafka on triokafka"),
        pytest.param(triokafka_copier, True, id="triokafka on Apache Kafka"),
        pytest.param(java_copier, False, id="Java on triokafka"),
    ],
)


def test_each_record_is_copied_once_through_two_kills(tmp_path: Path) -> None:
    copy_through_kills(tmp_path, triokafka_copier, kafka=False, count=6_000, kills=2)


@pytest.mark.long
@PAIRS
def test_each_of_100_000_records_is_copied_once_through_twenty_kills(
    command: Command, kafka: bool, tmp_path: Path
) -> None:
    copy_through_kills(tmp_path, command, kafka=kafka, count=100_000, kills=20)
