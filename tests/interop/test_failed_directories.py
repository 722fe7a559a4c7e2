"""A log directory of a node fails in a cluster of both programs: ours under the controllers of Kafka, and the reverse.

The replicas in the directory leave the in-sync sets and lead no more, those in the other directory stay, and new topics
get their replicas there. After the repair the node has all replicas again, and no acknowledged record is missing.
"""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path
from typing import Final

import pytest

from benchmarks.cluster_nodes import NodeGroup
from tests.interop import jvm
from tests.interop.mixed_cluster import TIMEOUT, Member, MixedCluster, Node
from tests.interop.test_cluster_kills import PARTITIONS, LibrdkafkaWriter, check

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

FAILING: Final = 3
SETTINGS: Final = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "initial.broker.registration.timeout.ms": "180000",
    "log.dir.failure.timeout.ms": "60000",
    # A write to the directory, and thus the failure, at least once a second.
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "min.insync.replicas": "1",
    "auto.leader.rebalance.enable": "false",
}


def second_directory(node: Node) -> Path:
    """Return the directory of a node that does not have the metadata log."""
    return node.data.with_name("data-2")


def replicas_in(directory: Path, topic: str) -> set[int]:
    """Return the partitions of a topic with a log in a directory."""
    return {int(folder.name.rpartition("-")[2]) for folder in directory.glob(f"{topic}-*") if folder.is_dir()}


def wait_until_created(node: Node, topic: str) -> None:
    """Wait until the node has all logs of a topic: its replicas count as in sync before that."""
    deadline = time.monotonic() + TIMEOUT
    while replicas_in(node.data, topic) | replicas_in(second_directory(node), topic) != set(range(PARTITIONS)):
        assert time.monotonic() < deadline, f"node {node.number} lacks logs of {topic}"
        time.sleep(0.05)


def wait_until_only(cluster: MixedCluster, topic: str, failed: set[int]) -> None:
    """Wait until the node is out of the in-sync sets of these partitions, and in those of all others."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        found = cluster.admin().list_topics(topic, timeout=TIMEOUT).topics[topic].partitions
        out = {number for number, one in found.items() if FAILING not in one.isrs}
        if out == failed and not any(one.leader in (FAILING, -1) for number, one in found.items() if number in failed):
            return
        state = {number: (one.leader, one.isrs) for number, one in found.items()}
        assert time.monotonic() < deadline, f"partitions {failed} have failed on node {FAILING}: {state}"
        time.sleep(0.2)


def failed_directories(cluster: MixedCluster) -> list[str]:
    """Return the names of the node's directories that Kafka's tool reports as failed."""
    printed = cluster.tool(
        "LogDirsCommand", "--bootstrap-server", cluster.bootstrap, "--describe", "--broker-list", str(FAILING)
    )
    (broker,) = json.loads(re.findall(r"^\{.*\}$", printed, re.MULTILINE)[0])["brokers"]
    return [Path(one["logDir"]).name for one in broker["logDirs"] if one["error"]]


@pytest.mark.parametrize("kafka", [(1, 2), (FAILING,)], ids=["ours under Apache Kafka's", "Apache Kafka's under ours"])
def test_replicas_move_away_from_a_failed_directory_and_back(tmp_path: Path, kafka: tuple[int, ...]) -> None:
    jvm.require("mvn", "java")
    jvm.jars()
    group = NodeGroup(tmp_path, [Member(number, kafka=number in kafka) for number in (1, 2, 3)], SETTINGS)
    for node in group.nodes.values():
        text = node.config.read_text()
        node.config.write_text(text.replace(f"log.dirs={node.data}", f"log.dirs={node.data},{second_directory(node)}"))
    with group:
        cluster, node = MixedCluster(group), group.nodes[FAILING]
        writer = LibrdkafkaWriter(cluster.bootstrap)
        cluster.create_topic(writer.topic, PARTITIONS)
        directory = second_directory(node)
        wait_until_created(node, writer.topic)
        failed = replicas_in(directory, writer.topic)
        assert failed and replicas_in(node.data, writer.topic), "a directory has no replica of the topic"
        with writer.thread.running():
            writer.wait_for_more(20)
            directory.rename(directory.with_name("saved"))
            directory.write_text("not a directory")
            wait_until_only(cluster, writer.topic, failed)
            writer.wait_for_more(20)
            assert failed_directories(cluster) == [directory.name]
            cluster.create_topic("later", PARTITIONS)
            wait_until_created(node, "later")
            directory.unlink()
            directory.with_name("saved").rename(directory)
            node.restart(signal.SIGTERM)
            cluster.wait_until_in_sync(writer.topic)
            writer.wait_for_more(20)
        assert replicas_in(node.data, "later") == set(range(PARTITIONS))
        assert replicas_in(directory, writer.topic) == failed
        assert not failed_directories(cluster)
        check(cluster, writer)
