"""Two programs copy a topic in transactions of 750 records, while they and the brokers are killed: each record once.

This is the experiment of KIP-98's system tests, with triokafka's client and Kafka's own on clusters of three nodes of
both. A failure prints the seed, which repeats the order of the kills.
"""

from __future__ import annotations

import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.interop import jvm
from tests.interop.killed_programs import KilledProgram, Progress
from tests.interop.mixed_cluster import Member, MixedCluster, mixed_cluster
from tests.support.transactional_drivers import read

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

PARTITIONS = 4
BATCH = 750
SOURCE, TARGET, GROUP = "source", "target", "copiers"
Command = Callable[[], list[str]]


def triokafka_copier() -> list[str]:
    """Return the command of a copier with triokafka's clients."""
    return [sys.executable, "-m", "tests.interop.copier"]


def java_copier() -> list[str]:
    """Return the command of a copier with Kafka's clients."""
    return ["java", *jvm.QUICK_START, "-Xmx192m", "-cp", jvm.compiled(), "TransactionalCopier"]


def fill(bootstrap: str, count: int) -> None:
    """Write the numbers to the source, evenly over its partitions."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20, "log_level": 0})
    for number in range(count):
        producer.produce(SOURCE, b"%d" % number, partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.flush(60)
    assert producer.flush(60) == 0


def kill_one(cluster: MixedCluster, copiers: list[KilledProgram], chance: random.Random, *, broker: bool) -> None:
    """Kill a copier, or a node, which is restarted; wait until it listens."""
    if not broker:
        chance.choice(copiers).kill()
        return
    node = cluster.nodes[chance.choice(sorted(cluster.nodes))]
    node.end(chance.choice((signal.SIGKILL, signal.SIGTERM)))
    node.start()
    node.wait_until_listening()


def copy_through_kills(tmp_path: Path, command: Command, *, kafka: bool, count: int, kills: int) -> None:
    """Copy ``count`` records, with a kill after every ``count / (kills + 1)`` of them."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    members = [Member(number, kafka=kafka) for number in (1, 2, 3)]
    with mixed_cluster(tmp_path, members) as cluster:
        cluster.create_topic(SOURCE, PARTITIONS, min_insync_replicas="2")
        cluster.create_topic(TARGET, PARTITIONS, min_insync_replicas="2")
        fill(cluster.bootstrap, count)
        copiers = [
            KilledProgram(
                [*command(), cluster.bootstrap, SOURCE, TARGET, GROUP, f"copier-{number}", str(BATCH)],
                tmp_path / f"copier-{number}.log",
            )
            for number in range(2)
        ]
        progress = Progress(cluster.bootstrap, GROUP, SOURCE, PARTITIONS)
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
@pytest.mark.timeout(0)
@PAIRS
def test_each_of_100_000_records_is_copied_once_through_twenty_kills(
    command: Command, kafka: bool, tmp_path: Path
) -> None:
    copy_through_kills(tmp_path, command, kafka=kafka, count=100_000, kills=20)
