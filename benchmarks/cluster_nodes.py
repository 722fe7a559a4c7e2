"""Nodes of a cluster, each in its own process: Apache Kafka's and ours, from the same properties file.

Ports and data directories outlive the processes of a node. The brokers listen on loopback.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from triokafka.cli.cluster.free_ports import free_ports

KAFKA_JARS: Final = Path(__file__).parent.parent / ".interop" / "jars"
SMALL_JAVA: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx320m")
"""Java options for a node that lives for seconds or minutes and shares the machine with others."""
FULL_JAVA: Final = ("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
"""Java options of Kafka's own start script."""

_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 60.0


class Member(NamedTuple):
    """The definition of a node. ``kafka`` runs Apache Kafka instead of triokafka."""

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


class NodeFailedError(Exception):
    """A node did not start, stop or get ready; the message ends with its log."""


class Node:
    """One node of a cluster. ``kafka`` selects the program of its next process."""

    def __init__(
        self,
        member: Member,
        directory: Path,
        properties: Mapping[str, str],
        ports: tuple[int, int],
        java: Sequence[str] = SMALL_JAVA,
    ) -> None:
        self.member = member
        self.number = member.number
        self.kafka = member.kafka
        self.data = directory / "data"
        self.log = directory / "server.log"
        self.config = directory / "server.properties"
        self.broker_port, self.controller_port = ports
        self._java = java
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True)
        self.config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))

    @property
    def address(self) -> str:
        """The address of its broker."""
        return f"127.0.0.1:{self.broker_port}"

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The id of its process."""
        assert self._process is not None
        return self._process.pid

    def _spawn(self, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        if self.kafka:
            command = ["java", *self._java, "-cp", f"{KAFKA_JARS}/*", main, *arguments]
        else:
            command = [sys.executable, "-m", "triokafka", *arguments]
        # Users' nodes find compiled byte code, so this one may write it, whatever the environment of this process says.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        with self.log.open("ab") as output:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
            )

    def format(self, cluster_id: str, *options: str) -> subprocess.Popen[bytes]:
        """Start to format its data directory."""
        words = ("format", "-t", cluster_id, "-c", str(self.config), *options)
        return self._spawn("kafka.tools.StorageTool", *(words if self.kafka else ("storage", *words)))

    def start(self, *, kafka: bool | None = None) -> None:
        """Start its process; ``kafka`` changes the program from now on."""
        self.kafka = self.kafka if kafka is None else kafka
        config = str(self.config)
        arguments = (config,) if self.kafka else ("broker", "--config", config, "-v")
        self._process = self._spawn("kafka.Kafka", *arguments)

    def wait_until_listening(self) -> None:
        """Wait until it accepts connections.

        Raises:
            NodeFailedError: it ended, or did not listen in time.
        """
        assert self._process is not None
        port = self.broker_port if self.member.is_broker else self.controller_port
        # The start of another program gives no event: ask until it answers or ends, at most a minute.
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise self._failed(f"ended with {self._process.returncode}")
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.02)
        raise self._failed(f"did not listen within {_START_SECONDS:.0f} s")

    def _failed(self, why: str) -> NodeFailedError:
        return NodeFailedError(f"node {self.number} {why}:\n{self.log.read_text(errors='replace')[-4000:]}")

    def end(self, signal_number: int = signal.SIGKILL) -> None:
        """Send a signal and wait for the end of the process, if there is one.

        Raises:
            NodeFailedError: it did not end within a minute and was killed.
        """
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal_number)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise self._failed(f"did not end within {_STOP_SECONDS:.0f} s of {signal_number!r}") from None

    def restart(self, signal_number: int = signal.SIGKILL) -> None:
        """End its process, start another, and wait until it listens."""
        self.end(signal_number)
        self.start()
        self.wait_until_listening()

    def pause(self) -> None:
        """Stop the process without ending it (SIGSTOP)."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume a paused process."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


class NodeGroup:
    """The nodes of one cluster by number; ``settings`` are further properties with Kafka's names.

    ``front`` starts a proxy for a port of a node, and returns the port that the node advertises instead of it.

    Use as a context manager: entering formats and starts all nodes, leaving kills them.
    """

    def __init__(
        self,
        directory: Path,
        members: Sequence[Member],
        settings: Mapping[str, str] | None = None,
        *,
        java: Sequence[str] = SMALL_JAVA,
        front: Callable[[int, int], int] | None = None,
    ) -> None:
        ports = free_ports(2 * len(members))
        by_number = {m.number: (ports[2 * i], ports[2 * i + 1]) for i, m in enumerate(members)}
        advertised = {
            number: pair if front is None else (front(number, pair[0]), front(number, pair[1]))
            for number, pair in by_number.items()
        }
        voters = ",".join(f"{m.number}@127.0.0.1:{advertised[m.number][1]}" for m in members if m.is_controller)
        replicas = min(3, sum(m.is_broker for m in members))
        common = {
            "controller.quorum.voters": voters,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "default.replication.factor": str(replicas),
            "min.insync.replicas": str(max(1, replicas - 1)),
            "offsets.topic.replication.factor": str(replicas),
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": str(replicas),
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            **(settings or {}),
        }
        self.nodes: dict[int, Node] = {}
        for member in members:
            folder = directory / f"node-{member.number}"
            own = {"process.roles": member.roles, "node.id": str(member.number), "log.dirs": str(folder / "data")}
            names = [("PLAINTEXT", 0)] * member.is_broker + [("CONTROLLER", 1)] * member.is_controller
            for option, pairs in (("listeners", by_number), ("advertised.listeners", advertised)):
                own[option] = ",".join(f"{name}://127.0.0.1:{pairs[member.number][which]}" for name, which in names)
            self.nodes[member.number] = Node(member, folder, {**common, **own}, by_number[member.number], java)

    def __enter__(self) -> NodeGroup:
        # An id that began with a hyphen would be taken for an option.
        cluster_id = "K" + urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
        for node, process in [(node, node.format(cluster_id)) for node in self.nodes.values()]:
            if process.wait(120) != 0:
                raise NodeFailedError(f"node {node.number} cannot be formatted:\n{node.log.read_text()[-3000:]}")
        try:
            for node in self.nodes.values():
                node.start()
            for node in self.nodes.values():
                node.wait_until_listening()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            if node.running:
                node.resume()
            node.end(signal.SIGKILL)

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
