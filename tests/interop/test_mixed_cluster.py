"""Nodes of triokafka and of Apache Kafka in one cluster: brokers under each other's controllers, and mixed quorums.

Nodes are killed in turn while librdkafka writes with acks=all. Afterwards every acknowledged record is in the log once
and in order, and all replicas, and all copies of the metadata log, have the same bytes.
"""

from __future__ import annotations

import signal
import time
from functools import partial
from pathlib import Path

import pytest
import trio
from confluent_kafka import Consumer, Message, Producer, TopicPartition

import triokafka
from tests.interop.mixed_cluster import TIMEOUT, Member, MixedCluster, Node, mixed_cluster
from tests.support.waiting import until

pytestmark = pytest.mark.interop

BOTH = "broker,controller"
PARTITIONS = 3
TOPIC = "mixed"

QUORUMS = {
    "our brokers under a controller of Apache Kafka": [
        Member(1, "broker"), Member(2, "broker"), Member(3, "broker", kafka=True), Member(9, "controller", kafka=True),
    ],
    "brokers of Apache Kafka under our controller": [
        Member(1, "broker", kafka=True), Member(2, "broker", kafka=True), Member(3, "broker"), Member(9, "controller"),
    ],
    "two controllers of Apache Kafka and one of ours": [
        Member(1, BOTH, kafka=True), Member(2, BOTH, kafka=True), Member(3, BOTH),
    ],
    "two of our controllers and one of Apache Kafka": [Member(1, BOTH), Member(2, BOTH), Member(3, BOTH, kafka=True)],
}  # fmt: skip


class Ledger:
    """A producer of librdkafka, and the offset of every acknowledged value."""

    def __init__(self, cluster: MixedCluster) -> None:
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.failed: list[str] = []
        self._next = 0
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "message.timeout.ms": 90_000,
                "reconnect.backoff.max.ms": 500,
            }
        )

    def send(self, count: int, *, wait: bool = True) -> None:
        """Send values; with ``wait``, wait until all of them are acknowledged."""

        def note(error: object, message: Message) -> None:
            if error is not None:
                self.failed.append(str(error))
                return
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None and offset is not None and value is not None
            known = self.acknowledged.setdefault((partition, offset), value)
            assert known == value, f"offset {offset} of partition {partition} was given to two records"

        for number in range(self._next, self._next + count):
            self._producer.produce(TOPIC, b"%08d" % number, partition=number % PARTITIONS, on_delivery=note)
            self._producer.poll(0)
        self._next += count
        if wait:
            assert self._producer.flush(TIMEOUT * 2) == 0
            assert not self.failed

    def check(self, cluster: MixedCluster) -> None:
        """Check that every acknowledged record is at its offset, and that the values of a partition ascend without a
        repetition.
        """
        assert len(self.acknowledged) == self._next
        found = read_all(cluster)
        assert {key: found.get(key) for key in self.acknowledged} == self.acknowledged
        for partition in range(PARTITIONS):
            values = [value for (where, _), value in sorted(found.items()) if where == partition]
            assert values == sorted(set(values)), f"partition {partition} has records twice or out of order"


def read_all(cluster: MixedCluster) -> dict[tuple[int, int], bytes]:
    """Return all records of the topic, by partition and offset."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "check", "enable.auto.commit": False})
    found: dict[tuple[int, int], bytes] = {}
    try:
        ends = {p: consumer.get_watermark_offsets(TopicPartition(TOPIC, p), TIMEOUT)[1] for p in range(PARTITIONS)}
        consumer.assign([TopicPartition(TOPIC, p, 0) for p in ends])
        deadline = time.monotonic() + TIMEOUT
        while len(found) < sum(ends.values()) and time.monotonic() < deadline:
            for message in consumer.consume(1000, 1.0):
                assert message.error() is None, message.error()
                partition, offset, value = message.partition(), message.offset(), message.value()
                assert partition is not None and offset is not None and value is not None
                found[partition, offset] = value
    finally:
        consumer.close()
    return found


def has_another_leader(cluster: MixedCluster, leader: int) -> bool:
    """Whether another node than ``leader`` leads the metadata quorum."""
    return cluster.active_controller() != leader


def let_lone_controller_lead(cluster: MixedCluster) -> Node:
    """Make the only controller of its program the leader, and return it.

    Left alone, it may never lead: of two followers, the one that gives the leader up later wins the election. Here the
    other follower lacks records.
    """
    (lone,) = (
        node for node in cluster.controllers if [one.kafka for one in cluster.controllers].count(node.kafka) == 1
    )
    if cluster.active_controller() == lone.number:
        return lone
    leader = cluster.nodes[cluster.active_controller()]
    (follower,) = (node for node in cluster.controllers if node not in (lone, leader))
    follower.end(signal.SIGKILL)
    before = metadata_high_watermark(cluster)
    until(lambda: metadata_high_watermark(cluster) > before, "the metadata log does not grow", TIMEOUT)
    leader.end(signal.SIGKILL)
    follower.start()
    until(lambda: cluster.active_controller() == lone.number, f"node {lone.number} does not lead", TIMEOUT)
    leader.start()
    for node in (follower, leader):
        node.wait_until_listening()
    cluster.wait_until_in_sync(TOPIC)
    return lone


def metadata_high_watermark(cluster: MixedCluster) -> int:
    """Return the high watermark of the metadata log, which grows at least every half second."""

    async def ask() -> int:
        async with triokafka.AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
            return (await admin.describe_metadata_quorum()).high_watermark

    return trio.run(ask)


@pytest.mark.parametrize("members", QUORUMS.values(), ids=[name.replace(" ", "_") for name in QUORUMS])
def test_nodes_of_both_kinds_serve_one_cluster_through_kills(tmp_path: Path, members: list[Member]) -> None:
    with mixed_cluster(tmp_path, members) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        ledger = Ledger(cluster)
        ledger.send(300)
        for node in cluster.brokers:
            ledger.send(200, wait=False)
            node.restart(signal.SIGKILL)
            ledger.send(200)
            cluster.wait_until_in_sync(TOPIC)
        if len(cluster.controllers) > 1:
            for number in range(len(cluster.controllers)):
                leader = cluster.nodes[cluster.active_controller()]
                if number == 1:
                    leader = let_lone_controller_lead(cluster)
                ledger.send(100, wait=False)
                leader.end(signal.SIGKILL)
                until(partial(has_another_leader, cluster, leader.number), "no failover", TIMEOUT)
                ledger.send(100)
                leader.start()
                leader.wait_until_listening()
                cluster.wait_until_in_sync(TOPIC)
        else:
            cluster.controllers[0].restart(signal.SIGKILL)
            cluster.create_topic("after-the-restart", 1)
        ledger.send(100)
        ledger.check(cluster)
        cluster.assert_replicas_equal(TOPIC, PARTITIONS)
        for node in cluster.nodes.values():
            node.end(signal.SIGKILL)
        cluster.assert_metadata_logs_agree()


def test_data_directories_of_a_cluster_move_to_the_other_program_and_back(tmp_path: Path) -> None:
    """The directories of three nodes of Apache Kafka are served by our nodes, and then by Apache Kafka's again."""
    with mixed_cluster(tmp_path, [Member(number, BOTH, kafka=True) for number in (1, 2, 3)]) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS, retention_ms="-1")
        ledger = Ledger(cluster)
        ledger.send(300)
        for kafka in (False, True):
            for node in cluster.nodes.values():
                node.end(signal.SIGKILL)
            for node in cluster.nodes.values():
                node.start(kafka=kafka)
            for node in cluster.nodes.values():
                node.wait_until_listening()
            cluster.wait_until_in_sync(TOPIC)
            ledger.send(300)
            cluster.create_topic(f"created-by-{'kafka' if kafka else 'triokafka'}", 2)
        ledger.check(cluster)
        cluster.assert_replicas_equal(TOPIC, PARTITIONS)
