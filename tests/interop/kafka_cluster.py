"""Nodes of Apache Kafka on loopback, each broker and controller, that can be stopped, killed and restarted."""

from __future__ import annotations

import signal
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.interop import jvm
from triokafka.cli.cluster.free_ports import free_ports

NODES = 3
TIMEOUT = 60.0
_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_QUICK_START = (*jvm.QUICK_START, "-Xmx384m")


class KafkaNode:
    """One node, with a data directory and ports that outlive its processes."""

    def __init__(
        self, number: int, directory: Path, ports: list[tuple[int, int]], more: Mapping[str, str] | None = None
    ) -> None:
        self.number = number
        self._directory = directory
        directory.mkdir(parents=True)
        self._broker_port, controller_port = ports[number - 1]
        self.address = f"127.0.0.1:{self._broker_port}"
        self.data = directory / "data"
        self._process: subprocess.Popen[bytes] | None = None
        replicas = str(min(len(ports), NODES))
        properties = {
            "process.roles": "broker,controller",
            "node.id": str(number),
            "controller.quorum.voters": ",".join(f"{i}@127.0.0.1:{p}" for i, (_, p) in enumerate(ports, start=1)),
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data),
            "default.replication.factor": replicas,
            "min.insync.replicas": str(max(1, len(ports) - 1)),
            "offsets.topic.replication.factor": replicas,
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            # detects a dead node soon
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            # That is also how long a broker waits for the answer to its registration; it tries again for this long.
            "initial.broker.registration.timeout.ms": "180000",
            "replica.lag.time.max.ms": "5000",
            "auto.leader.rebalance.enable": "false",
            **(more or {}),
        }
        self.config = directory / "server.properties"
        self.config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))

    @property
    def log(self) -> Path:
        """The output of its processes."""
        return self._directory / "server.log"

    @property
    def running(self) -> bool:
        """Whether it has a process."""
        return self._process is not None

    def format(self, cluster_id: str) -> subprocess.Popen[bytes]:
        """Start to format the data directory."""
        command = ["java", *_QUICK_START, "-cp", f"{jvm.jars()}/*", "kafka.tools.StorageTool"]
        return subprocess.Popen(
            [*command, "format", "-t", cluster_id, "-c", str(self.config)], stdout=subprocess.DEVNULL
        )

    def start(self) -> None:
        """Start a process; it serves some seconds later."""
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                ["java", *_QUICK_START, "-cp", f"{jvm.jars()}/*", "kafka.Kafka", str(self.config)],
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def end(self, signal_number: int) -> None:
        """Send a signal and wait for the end of the process."""
        process = self._process
        if process is None:
            return
        process.send_signal(signal_number)
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            self._process = None

    def wait_until_listening(self) -> None:
        """Wait until the node accepts connections; fail if its process ends."""
        assert self._process is not None
        jvm.wait_until_listening(self._process, self._broker_port, self.log)


class KafkaCluster:
    """The nodes 1 to ``len(nodes)``."""

    def __init__(self, nodes: list[KafkaNode]) -> None:
        self.nodes = nodes
        self.bootstrap = ",".join(node.address for node in nodes)

    def admin(self) -> AdminClient:
        """An admin client of librdkafka."""
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def leaders(self, topic: str) -> list[int]:
        """Return the leader of each partition; -1 for none."""
        partitions = self.admin().list_topics(topic, timeout=TIMEOUT).topics[topic].partitions
        return [partitions[number].leader for number in sorted(partitions)]

    def wait_until_in_sync(self, topic: str) -> None:
        """Wait until every replica of the topic is in sync; there is no event for that from another program."""
        admin, deadline = self.admin(), time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            found = admin.list_topics(topic, timeout=TIMEOUT).topics[topic].partitions.values()
            if found and all(len(p.isrs) == len(p.replicas) and p.leader >= 0 for p in found):
                return
            time.sleep(0.1)
        raise AssertionError(f"the replicas of {topic} did not catch up")

    def elect_preferred_leaders(self, topic: str) -> None:
        """Move leaders back to the first replica of each partition."""
        partitions = [TopicPartition(topic, number) for number in range(len(self.leaders(topic)))]
        admin = self.admin()
        admin.elect_leaders(ElectionType.PREFERRED, partitions).result(TIMEOUT)


@contextmanager
def kafka_cluster(directory: Path, nodes: int = NODES, *, racks: bool = False) -> Iterator[KafkaCluster]:
    """Run so many nodes for the length of the block, even if the test stops or kills some of them.

    With ``racks`` each node is in its own rack, named ``rack-1`` and so on, and consumers are redirected to replicas in
    their rack.
    """
    jvm.require("mvn", "java")
    ports = free_ports(2 * nodes)
    pairs = list(zip(ports[::2], ports[1::2], strict=True))
    members = [
        KafkaNode(
            number,
            directory / f"node-{number}",
            pairs,
            {"broker.rack": f"rack-{number}", "replica.selector.class": _SELECTOR} if racks else None,
        )
        for number in range(1, nodes + 1)
    ]
    # A first character "-" would make it an option.
    cluster_id = "K" + urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
    for process in [node.format(cluster_id) for node in members]:
        assert process.wait(120) == 0
    try:
        for node in members:
            node.start()
        for node in members:
            node.wait_until_listening()
        yield KafkaCluster(members)
    finally:
        for node in members:
            node.end(signal.SIGKILL)
