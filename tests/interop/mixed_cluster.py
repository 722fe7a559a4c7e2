"""A cluster whose nodes are Apache Kafka's and ours, each in a process of its own, from the same properties file.

Every node can be killed, paused, stopped and started again. Ports and data directories outlive its processes.
"""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop import jvm
from triokafka.records import iter_batches

TIMEOUT = 60.0
METADATA_PARTITION = "__cluster_metadata-0"
_JAVA = ("java", *jvm.QUICK_START, "-Xmx320m")


@dataclass(frozen=True, slots=True)
class Member:
    """A node to run: ``kafka`` runs Apache Kafka, otherwise triokafka runs."""

    number: int
    roles: str = "broker,controller"
    kafka: bool = False

    @property
    def is_broker(self) -> bool:
        """Whether it has the broker role."""
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        """Whether it has the controller role."""
        return "controller" in self.roles


class Node:
    """One node of a mixed cluster."""

    def __init__(self, member: Member, directory: Path, properties: dict[str, str], ports: tuple[int, int]) -> None:
        self.member = member
        self.number = member.number
        self.kafka = member.kafka
        self.data = directory / "data"
        self.log = directory / "server.log"
        self.config = directory / "server.properties"
        self.broker_port, self.controller_port = ports
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True)
        self.write_config(properties)

    @property
    def address(self) -> str:
        """The address of its broker."""
        return f"127.0.0.1:{self.broker_port}"

    @property
    def running(self) -> bool:
        """Whether it has a process."""
        return self._process is not None and self._process.poll() is None

    def write_config(self, properties: dict[str, str]) -> None:
        """Write its properties file."""
        self.config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))

    def format(self, cluster_id: str, *options: str) -> subprocess.Popen[bytes]:
        """Begin to format its data directory."""
        arguments = ["format", "-t", cluster_id, "-c", str(self.config), *options]
        if self.kafka:
            command = [*_JAVA, "-cp", f"{jvm.jars()}/*", "kafka.tools.StorageTool", *arguments]
        else:
            command = [sys.executable, "-m", "triokafka", "storage", *arguments]
        with self.log.open("ab") as output:
            return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    def start(self, *, kafka: bool | None = None) -> None:
        """Start its process; ``kafka`` says which program runs from now on, by default the same as before."""
        self.kafka = self.kafka if kafka is None else kafka
        if self.kafka:
            command = [*_JAVA, "-cp", f"{jvm.jars()}/*", "kafka.Kafka", str(self.config)]
        else:
            command = [sys.executable, "-m", "triokafka", "broker", "--config", str(self.config), "-v"]
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    def wait_until_listening(self) -> None:
        """Wait until it accepts connections; fails with the end of its log when it ends instead."""
        assert self._process is not None
        port = self.broker_port if self.member.is_broker else self.controller_port
        jvm.wait_until_listening(self._process, port, self.log)

    def end(self, signal_number: int = signal.SIGKILL) -> None:
        """Send a signal and wait for the end."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal_number)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    def restart(self, signal_number: int = signal.SIGKILL) -> None:
        """End its process and start another."""
        self.end(signal_number)
        self.start()
        self.wait_until_listening()

    def pause(self) -> None:
        """Stop the process without ending it (SIGSTOP)."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def records_of(self, partition: str) -> bytes:
        """The bytes of all segments of a partition, in order, up to the last complete batch."""
        data = b"".join(path.read_bytes() for path in sorted((self.data / partition).glob("*.log")))
        end = 0
        for batch in iter_batches(data, check_crc=True):
            end = batch.position + batch.size
        return data[:end]


class MixedCluster:
    """The running nodes by number."""

    def __init__(self, nodes: dict[int, Node]) -> None:
        self.nodes = nodes

    @property
    def brokers(self) -> list[Node]:
        """The nodes with the broker role."""
        return [node for node in self.nodes.values() if node.member.is_broker]

    @property
    def controllers(self) -> list[Node]:
        """The nodes with the controller role."""
        return [node for node in self.nodes.values() if node.member.is_controller]

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers."""
        return ",".join(node.address for node in self.brokers)

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
        admin, deadline = self.admin(), time.monotonic() + TIMEOUT
        while True:  # all brokers must have registered, which no client can wait for
            try:
                topic = NewTopic(name, partitions, replicas, config=settings)
                admin.create_topics([topic])[name].result(TIMEOUT)
                break
            except Exception:
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
        """The node that leads the metadata quorum, as Kafka's own tool reports it."""
        text = self.tool(
            "MetadataQuorumCommand", "--bootstrap-controller", self._one_controller(), "describe", "--status"
        )
        [line] = [line for line in text.splitlines() if line.startswith("LeaderId:")]
        return int(line.split()[1])

    def _one_controller(self) -> str:
        return next(f"127.0.0.1:{node.controller_port}" for node in self.controllers if node.running)

    def tool(self, name: str, *arguments: str, check: bool = True) -> str:
        """Run one of Kafka's command line tools and return what it printed."""
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
        """All brokers have the same bytes of every partition, once they are in sync."""
        self.wait_until_in_sync(topic)
        for number in range(partitions):
            folder = f"{topic}-{number}"
            with_replica = [node for node in self.brokers if (node.data / folder).is_dir()]
            deadline = time.monotonic() + TIMEOUT
            while True:
                logs = {node.number: node.records_of(folder) for node in with_replica}
                if len(set(logs.values())) == 1:
                    break
                if time.monotonic() > deadline:  # the last records may still be on their way
                    sizes = {node: len(log) for node, log in logs.items()}
                    raise AssertionError(f"the replicas of {folder} differ: sizes {sizes}")
                time.sleep(0.2)

    def assert_metadata_logs_agree(self) -> None:
        """The metadata logs of all nodes are equal as far as both reach, from the first offset that both have."""
        logs = {node.number: node.records_of(METADATA_PARTITION) for node in self.nodes.values()}
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


@contextmanager
def mixed_cluster(directory: Path, members: Sequence[Member], **settings: str) -> Iterator[MixedCluster]:
    """Format and run nodes for the length of the block. ``settings`` are further properties, with ``_`` for ``.``."""
    if any(member.kafka for member in members):
        jvm.require("mvn", "java")
    ports = jvm.free_ports(2 * len(members))
    by_number = {m.number: (ports[2 * i], ports[2 * i + 1]) for i, m in enumerate(members)}
    voters = ",".join(f"{m.number}@127.0.0.1:{by_number[m.number][1]}" for m in members if m.is_controller)
    replicas = str(min(3, sum(m.is_broker for m in members)))
    nodes: dict[int, Node] = {}
    for member in members:
        folder = directory / f"node-{member.number}"
        broker_port, controller_port = by_number[member.number]
        listeners = []
        properties = {"process.roles": member.roles, "node.id": str(member.number), "controller.quorum.voters": voters}
        if member.is_broker:
            listeners.append(f"PLAINTEXT://127.0.0.1:{broker_port}")
            properties["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{broker_port}"
        if member.is_controller:
            listeners.append(f"CONTROLLER://127.0.0.1:{controller_port}")
        properties |= {
            "listeners": ",".join(listeners),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(folder / "data"),
            "default.replication.factor": replicas,
            "min.insync.replicas": "1" if replicas == "1" else "2",
            "offsets.topic.replication.factor": replicas,
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            # A dead node is found soon.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            "replica.lag.time.max.ms": "5000",
            "auto.leader.rebalance.enable": "false",
        }
        properties |= {name.replace("_", "."): value for name, value in settings.items()}
        nodes[member.number] = Node(member, folder, properties, (broker_port, controller_port))
    # An id that began with a hyphen would be taken for an option.
    cluster_id = "K" + urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
    for node, process in [(node, node.format(cluster_id)) for node in nodes.values()]:
        assert process.wait(120) == 0, f"node {node.number} cannot be formatted:\n{node.log.read_text()[-3000:]}"
    try:
        for node in nodes.values():
            node.start()
        for node in nodes.values():
            node.wait_until_listening()
        yield MixedCluster(nodes)
    finally:
        for node in nodes.values():
            if node.running:
                node.resume()
            node.end(signal.SIGKILL)
