"""A cluster whose nodes are Apache Kafka's and ours, each in its own process, from the same properties file.

Every node can be killed, paused, stopped and restarted. Ports and data directories outlive its processes.
"""

from __future__ import annotations

import itertools
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import trio
from confluent_kafka.admin import AdminClient, NewTopic

import triokafka
from benchmarks.cluster_nodes import Member, Node, NodeGroup
from tests.interop import jvm
from tests.interop.node_network import NodeNetwork
from triokafka.errors import KafkaError
from triokafka.protocol.stored.control_records import ControlRecordType, LeaderChangeMessage
from triokafka.records import decode_records, iter_batches

__all__ = ["TIMEOUT", "Member", "MixedCluster", "Node", "mixed_cluster", "records_of"]

TIMEOUT = 120.0
METADATA_PARTITION = "__cluster_metadata-0"
_JAVA = ("java", *jvm.QUICK_START, "-Xmx320m")


class MixedCluster:
    """The nodes of a `NodeGroup`, with the queries that tests need."""

    def __init__(self, group: NodeGroup) -> None:
        self.nodes = group.nodes
        self.brokers = group.brokers
        self.controllers = group.controllers
        self.bootstrap = group.bootstrap

    @property
    def bootstrap_controllers(self) -> str:
        """Addresses of all controllers."""
        return ",".join(f"127.0.0.1:{node.controller_port}" for node in self.controllers)

    def admin(self) -> AdminClient:
        """librdkafka's admin client."""
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def create_topic(self, name: str, partitions: int = 1, replicas: int = 3, **config: str) -> None:
        """Create a topic, and wait until all of its replicas are in sync."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin, deadline, attempts = self.admin(), time.monotonic() + TIMEOUT, 0
        while True:  # all brokers must have registered, and there is no event for that
            attempts += 1
            try:
                topic = NewTopic(name, partitions, replicas, config=settings)
                admin.create_topics([topic])[name].result(TIMEOUT)
                break
            except Exception as error:
                if attempts > 1 and "TOPIC_ALREADY_EXISTS" in str(error):
                    break  # the response to the first attempt was lost
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        self.wait_until_in_sync(name)

    def leaders(self, topic: str) -> list[int]:
        """The leader of each partition; -1 for none."""
        partitions = self.admin().list_topics(topic, timeout=TIMEOUT).topics[topic].partitions
        return [partitions[number].leader for number in sorted(partitions)]

    def wait_until_in_sync(self, topic: str) -> None:
        """Wait until every replica of the topic is in sync; other programs have no event for that."""
        admin, deadline = self.admin(), time.monotonic() + TIMEOUT
        found = {}
        while time.monotonic() < deadline:
            found = admin.list_topics(topic, timeout=TIMEOUT).topics[topic].partitions
            if found and all(len(p.isrs) == len(p.replicas) and p.leader >= 0 for p in found.values()):
                return
            time.sleep(0.1)
        state = {number: (p.leader, p.replicas, p.isrs) for number, p in found.items()}
        raise AssertionError(f"the replicas of {topic} did not catch up: {state}")

    def active_controller(self) -> int:
        """Wait until a node leads the metadata quorum, and return its id."""
        deadline = time.monotonic() + TIMEOUT

        async def ask() -> int:
            async with triokafka.AdminClient(bootstrap_servers=self.bootstrap) as admin:
                while True:
                    failure: KafkaError | None = None
                    try:
                        leader = (await admin.describe_metadata_quorum(timeout_ms=10_000)).leader_id
                    except KafkaError as error:
                        failure, leader = error, -1
                    if leader >= 0:
                        return leader
                    assert time.monotonic() < deadline, f"no controller leads: {failure}"
                    await trio.sleep(0.1)

        return trio.run(ask)

    def tool(self, name: str, *arguments: str, check: bool = True) -> str:
        """Run one of Kafka's command line tools and return its output."""
        main = name if "." in name else f"org.apache.kafka.tools.{name}"
        done = subprocess.run(
            [*_JAVA, "-cp", f"{jvm.jars()}/*", main, *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if check:
            assert done.returncode == 0, f"{name} {arguments} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def assert_replicas_equal(self, topic: str, partitions: int) -> None:
        """Check that all brokers have the same bytes of every partition, once they are in sync."""
        self.wait_until_in_sync(topic)
        for number in range(partitions):
            folder = f"{topic}-{number}"
            with_replica = [node for node in self.brokers if (node.data / folder).is_dir()]
            deadline = time.monotonic() + TIMEOUT
            while True:
                logs = {node.number: records_of(node, folder) for node in with_replica}
                if len(set(logs.values())) == 1:
                    break
                if time.monotonic() > deadline:  # the last records may still be replicating
                    sizes = {node: len(log) for node, log in logs.items()}
                    raise AssertionError(f"the replicas of {folder} differ: sizes {sizes}")
                time.sleep(0.2)

    def assert_one_leader_per_epoch(self) -> int:
        """Check that no two LeaderChange records in all metadata logs name different leaders of an epoch.

        Returns the number of epochs.
        """
        leaders: dict[int, set[int]] = {}
        for node in self.nodes.values():
            log = records_of(node, METADATA_PARTITION)
            for batch in iter_batches(log):
                if batch.is_control:
                    data = log[batch.position : batch.position + batch.size]
                    for record in decode_records(data, include_control=True):
                        if struct.unpack_from("!hh", record.key or b"")[1] == ControlRecordType.LEADER_CHANGE:
                            change = LeaderChangeMessage.decode(record.value or b"", 0)
                            leaders.setdefault(batch.partition_leader_epoch, set()).add(change.leader_id)
        assert all(len(found) == 1 for found in leaders.values()), f"epochs with several leaders: {leaders}"
        return len(leaders)

    def assert_metadata_logs_agree(self) -> None:
        """Check that the metadata logs of all nodes are equal in their common range of offsets."""
        logs = {node.number: records_of(node, METADATA_PARTITION) for node in self.nodes.values()}
        batches = {
            number: {
                batch.base_offset: log[batch.position : batch.position + batch.size] for batch in iter_batches(log)
            }
            for number, log in logs.items()
        }
        numbers = sorted(batches)
        for one, other in itertools.pairwise(numbers):
            common = batches[one].keys() & batches[other].keys()
            assert common, f"nodes {one} and {other} have no batch of the metadata log in common"
            first, last = max(min(batches[one]), min(batches[other])), min(max(batches[one]), max(batches[other]))
            for offset in sorted(
                offset for offset in batches[one].keys() | batches[other].keys() if first <= offset <= last
            ):
                assert batches[one].get(offset) == batches[other].get(offset), (
                    f"nodes {one} and {other} differ at offset {offset} of the metadata log"
                )


def records_of(node: Node, partition: str) -> bytes:
    """The bytes of all segments of a partition, in order, up to the last complete batch."""
    data = b"".join(path.read_bytes() for path in sorted((node.data / partition).glob("*.log")))
    end = 0
    for batch in iter_batches(data, check_crc=True):
        end = batch.position + batch.size
    return data[:end]


@contextmanager
def mixed_cluster(
    directory: Path, members: Sequence[Member], network: NodeNetwork | None = None, /, **settings: str
) -> Iterator[MixedCluster]:
    """Format and run nodes for the length of the block. ``settings`` are further properties, with ``_`` for ``.``.

    With ``network``, the nodes reach each other through its proxies.
    """
    if any(member.kafka for member in members):
        jvm.require("mvn", "java")
        jvm.jars()
    properties = {
        # detects a dead node soon
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        # That is also how long Kafka's broker waits for the answer to its registration; it tries again for this long.
        "initial.broker.registration.timeout.ms": "180000",
        "replica.lag.time.max.ms": "5000",
        "auto.leader.rebalance.enable": "false",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    group = NodeGroup(directory, members, properties, front=None if network is None else network.front)
    if network is not None:
        network.pids = lambda: {number: node.pid for number, node in group.nodes.items() if node.running}
    with group:
        yield MixedCluster(group)
