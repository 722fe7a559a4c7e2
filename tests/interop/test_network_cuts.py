"""A quorum of Apache Kafka's controllers and ours whose network is cut: silence, silence in one direction, and resets.

Every connection between nodes goes through a proxy. librdkafka and our producer write with acks=all, and topics are
created, all the time. After the network has healed, everything continues within 30 seconds, no acknowledged record or
topic is missing, no epoch has two leaders, and the copies of the metadata log have the same bytes.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
import trio
from confluent_kafka.admin import AdminClient

import triokafka
from tests.interop.client_thread import ClientThread
from tests.interop.mixed_cluster import TIMEOUT, Member, MixedCluster, mixed_cluster
from tests.interop.node_network import NodeNetwork, node_network
from tests.interop.test_cluster_kills import PARTITIONS, LibrdkafkaWriter, TriokafkaWriter, check
from triokafka.errors import KafkaError

pytestmark = pytest.mark.interop

BOTH = "broker,controller"
NODES = (1, 2, 3)
FAULT_SECONDS = 5.0
HEALED_WITHIN = 30.0


class TopicCreator:
    """A client that creates one topic after another, and the names of the topics whose creation was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.created: list[str] = []
        self._bootstrap = bootstrap
        self.thread = ClientThread("topics", lambda: trio.run(self._run), ends_within=TIMEOUT)

    async def _run(self) -> None:
        number = 0
        async with triokafka.AdminClient(bootstrap_servers=self._bootstrap) as admin:
            while not self.thread.stopping.is_set():
                name = f"created-{number}"
                number += 1
                try:
                    await admin.create_topics([triokafka.NewTopic(name, 1, 3)], timeout_ms=2_000)
                except KafkaError:
                    pass  # the result is unknown: nodes are cut off
                else:
                    self.created.append(name)
                await trio.sleep(0.2)


def wait_for_more(creator: TopicCreator, count: int) -> None:
    """Wait until so many more topics are created."""
    target, deadline = len(creator.created) + count, time.monotonic() + TIMEOUT
    while len(creator.created) < target:
        assert time.monotonic() < deadline, f"no topic was created for {TIMEOUT:.0f} s"
        time.sleep(0.05)


def cut(network: NodeNetwork, fault: str, leader: int) -> None:
    """Cut the network around the leader of the quorum, or around a follower."""
    others = [node for node in NODES if node != leader]
    match fault:
        case "leader silent":
            network.isolate(leader, others, network.silence)
        case "nothing from the leader":
            for other in others:
                network.silence(leader, other)
        case "follower reset":
            network.isolate(others[0], [leader, others[1]], network.cut)
        case _:
            raise ValueError(fault)


@pytest.mark.parametrize("kafka", [(1, 2), (1,)], ids=["two_of_Apache_Kafka", "two_of_ours"])
def test_mixed_quorum_continues_after_its_network_was_cut(tmp_path: Path, kafka: tuple[int, ...]) -> None:
    members = [Member(number, BOTH, kafka=number in kafka) for number in NODES]
    with node_network() as network, mixed_cluster(tmp_path, members, network) as cluster:
        writers = [LibrdkafkaWriter(cluster.bootstrap), TriokafkaWriter(cluster.bootstrap)]
        for writer in writers:
            cluster.create_topic(writer.topic, PARTITIONS)
        creator = TopicCreator(cluster.bootstrap)
        with writers[0].thread.running(), writers[1].thread.running(), creator.thread.running():
            for fault in ("leader silent", "nothing from the leader", "follower reset"):
                for writer in writers:
                    writer.wait_for_more(20)
                leader = cluster.active_controller()
                cut(network, fault, leader)
                time.sleep(FAULT_SECONDS)  # the fault itself
                network.heal()
                healed_at = time.monotonic()
                for writer in writers:
                    writer.wait_for_more(20)
                wait_for_more(creator, 1)
                took = time.monotonic() - healed_at
                assert took < HEALED_WITHIN, f"{fault}, node {leader} led: {took:.0f} s without progress"
        for writer in writers:
            cluster.assert_replicas_equal(writer.topic, PARTITIONS)
            check(cluster, writer)
        assert_known_everywhere(cluster, creator.created)
        for node in cluster.nodes.values():
            node.end(signal.SIGKILL)
        assert cluster.assert_one_leader_per_epoch() > 1, "the silent leader stayed in office"
        cluster.assert_metadata_logs_agree()


def assert_known_everywhere(cluster: MixedCluster, topics: list[str]) -> None:
    """Check that every broker knows the topics."""
    for node in cluster.brokers:
        known = AdminClient({"bootstrap.servers": node.address}).list_topics(timeout=TIMEOUT).topics
        assert set(topics) <= set(known), f"node {node.number} lacks topics whose creation was acknowledged"
