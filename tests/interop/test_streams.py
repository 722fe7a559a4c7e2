"""Kafka Streams counts words with exactly_once_v2 on a cluster of ours, through kills of its instances and of brokers.

It needs more from a broker than a producer and a consumer do: topics for changelogs and repartitioning that the group's
leader creates, DeleteRecords on the latter, its own assignor with standby replicas, changelogs that are read back after
a kill, and the group's offsets in the transactions of the counts.
"""

from __future__ import annotations

import signal
from collections import defaultdict
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.interop import jvm
from tests.interop.killed_programs import STALL, KilledProgram, Progress
from tests.interop.mixed_cluster import Member, MixedCluster, mixed_cluster
from tests.support.transactional_drivers import read
from tests.support.waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

PARTITIONS = 2
LINES = 2_000
WORDS = 8
VOCABULARY = 97
APPLICATION = "word-count"


def word(line: int, position: int) -> str:
    """Return the word at a position of a line."""
    return f"w{(line * 31 + position * 17) % VOCABULARY}"


def write_lines(bootstrap: str, lines: range) -> None:
    """Write lines of words, evenly over the partitions."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    for line in lines:
        text = " ".join(word(line, position) for position in range(WORDS))
        producer.produce("lines", text.encode(), partition=line % PARTITIONS)
    assert producer.flush(60) == 0


def leader(cluster: MixedCluster, topic: str) -> int:
    """Return the number of the node that leads the topic's first partition."""
    return cluster.leaders(topic)[0]


def test_each_word_is_counted_once_through_kills_of_instances_and_brokers(tmp_path: Path) -> None:
    java = ["java", *jvm.QUICK_START, "-Xmx256m", "-cp", jvm.compiled(), "WordCount"]
    with mixed_cluster(tmp_path, [Member(number, kafka=False) for number in (1, 2, 3)]) as cluster:
        cluster.create_topic("lines", PARTITIONS)
        cluster.create_topic("counts", PARTITIONS)
        instances = [
            KilledProgram(
                [*java, cluster.bootstrap, APPLICATION, str(tmp_path / f"state-{name}")], tmp_path / f"{name}.log"
            )
            for name in ("a", "b")
        ]
        progress = Progress(cluster.bootstrap, APPLICATION, "lines", PARTITIONS)
        step = LINES // 4
        try:
            write_lines(cluster.bootstrap, range(step))
            progress.wait_for(step, instances)

            instances[0].kill()
            write_lines(cluster.bootstrap, range(step, 2 * step))
            progress.wait_for(2 * step, instances)

            node = cluster.nodes[leader(cluster, f"{APPLICATION}-totals-changelog")]
            node.end(signal.SIGKILL)
            write_lines(cluster.bootstrap, range(2 * step, 3 * step))
            progress.wait_for(3 * step, instances)
            node.start()
            node.wait_until_listening()

            instances[1].kill()
            write_lines(cluster.bootstrap, range(3 * step, LINES))
            progress.wait_for(LINES, instances)
            wait_for_all_counts(cluster, instances)
        finally:
            progress.close()
            for instance in instances:
                instance.kill()
        assert counts_of(cluster) == expected_counts()


def expected_counts() -> dict[str, list[int]]:
    """Return every word's counts in order, without a gap and without a repetition."""
    totals: defaultdict[str, int] = defaultdict(int)
    for line in range(LINES):
        for position in range(WORDS):
            totals[word(line, position)] += 1
    return {word: list(range(1, total + 1)) for word, total in totals.items()}


def wait_for_all_counts(cluster: MixedCluster, instances: list[KilledProgram]) -> None:
    """Wait until every word is counted, which happens after its line was read; restart instances that ended."""

    def complete() -> bool:
        for instance in instances:
            instance.keep_running()
        return len(read(cluster.bootstrap, "counts", PARTITIONS)) >= LINES * WORDS

    until(complete, f"not all {LINES * WORDS} words are counted", STALL)


def counts_of(cluster: MixedCluster) -> dict[str, list[int]]:
    """Return every word's counts in the order in which a read_committed consumer gets them."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for value in read(cluster.bootstrap, "counts", PARTITIONS):
        name, count = value.decode().split()
        found[name].append(int(count))
    return dict(found)
