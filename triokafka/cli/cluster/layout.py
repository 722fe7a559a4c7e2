"""The files of a cluster of processes: one directory and one ``server.properties`` for each node.

The properties are written at every start, from the options of the command. The data directories keep the cluster's id.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from triokafka.cli.broker_options import WrongUse
from triokafka.cli.cluster.free_ports import free_ports, is_free
from triokafka.structs import format_uuid

_MOST_CONTROLLERS: Final = 3
_MOST_REPLICAS: Final = 3


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """The place of one node: its id, its directory, and the address of its broker."""

    node_id: int
    directory: str
    host: str
    port: int
    properties: Mapping[str, str]

    @property
    def address(self) -> str:
        """HOST:PORT of its broker."""
        return f"{self.host}:{self.port}"

    @property
    def config(self) -> str:
        """The path of its ``server.properties``."""
        return os.path.join(self.directory, "server.properties")

    @property
    def log(self) -> str:
        """The path of the file that its processes log to."""
        return os.path.join(self.directory, "node.log")

    @property
    def data(self) -> str:
        """The node's log directory."""
        return os.path.join(self.directory, "data")

    def write(self) -> None:
        """Write its properties. Raises OSError."""
        from triokafka.broker_stub.config.properties import format_properties

        os.makedirs(self.data, exist_ok=True)
        temporary = self.config + ".new"
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(format_properties(self.properties, comment="Written by triokafka cluster at every start."))
        os.replace(temporary, self.config)


@dataclass(frozen=True, slots=True)
class ClusterLayout:
    """The nodes of a cluster, in the order of their ids, which begin at 1."""

    nodes: tuple[NodeLayout, ...]
    cluster_id: str

    @classmethod
    def of(cls, directory: str, count: int, host: str, port: int, settings: Mapping[str, str]) -> ClusterLayout:
        """Return the layout of a cluster of ``count`` nodes in ``directory``.

        The brokers listen on ``port`` and the following ports, or on free ones if it is 0; controllers listen on free
        ports. ``settings`` override the properties of every node.

        Raises:
            WrongUse: the directory has a cluster with another number of nodes, the ports do not suffice, or a setting
                is one that differs between the nodes.
        """
        own = sorted({"node.id", "listeners", "advertised.listeners", "log.dirs", "process.roles"} & settings.keys())
        if own:
            raise WrongUse(f"--set {own[0]}: every node has its own; the cluster sets it.")
        if port and port + count - 1 > 65_535:
            raise WrongUse(f"--listen {host}:{port}: {count} brokers need the ports up to {port + count - 1}.")
        known = _nodes_in(directory)
        if known and known != count:
            raise WrongUse(f"{directory} has a cluster of {known} nodes: give --nodes {known}, or another --data-dir.")
        controllers = (
            count if count in (1, _MOST_CONTROLLERS) else 1 if count < _MOST_CONTROLLERS else _MOST_CONTROLLERS
        )
        ports = list(range(port, port + count)) if port else []
        former = _controller_ports_in(directory) if known else []
        if len(former) != controllers or set(former) & set(ports) or not all(is_free(host, one) for one in former):
            former = []
        free = former + _free_ports(host, controllers - len(former) + (0 if port else count), without={*ports, *former})
        ports = ports or free[controllers:]
        voters = ",".join(f"{number}@{host}:{free[number - 1]}" for number in range(1, controllers + 1))
        replicas = min(count, _MOST_REPLICAS)
        common = {
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "default.replication.factor": str(replicas),
            "min.insync.replicas": str(max(1, replicas - 1)),
            "offsets.topic.replication.factor": str(replicas),
            "transaction.state.log.replication.factor": str(replicas),
            "transaction.state.log.min.isr": str(max(1, replicas - 1)),
        }
        nodes = []
        for number, own_port in enumerate(ports, start=1):
            folder = os.path.join(directory, f"node-{number}")
            listeners = [f"PLAINTEXT://{host}:{own_port}"]
            if number <= controllers:
                listeners.append(f"CONTROLLER://{host}:{free[number - 1]}")
            properties = {
                "process.roles": "broker,controller" if number <= controllers else "broker",
                "node.id": str(number),
                "listeners": ",".join(listeners),
                "advertised.listeners": listeners[0],
                "log.dirs": os.path.join(os.path.abspath(folder), "data"),
            }
            nodes.append(NodeLayout(number, folder, host, own_port, {**common, **settings, **properties}))
        return cls(tuple(nodes), _cluster_id_in(directory) or new_id())

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, separated by commas."""
        return ",".join(node.address for node in self.nodes)


def _nodes_in(directory: str) -> int:
    """Return how many nodes an earlier start has left in the directory."""
    count = 0
    while os.path.exists(os.path.join(directory, f"node-{count + 1}", "server.properties")):
        count += 1
    return count


def _controller_ports_in(directory: str) -> list[int]:
    """Return the ports of the controllers of the last start; the voters of a dynamic quorum have them in the log."""
    from triokafka.broker_stub.config.properties import parse_properties

    path = os.path.join(directory, "node-1", "server.properties")
    try:
        with open(path, encoding="utf-8") as file:
            voters = parse_properties(file.read(), source=path).get("controller.quorum.voters", "")
        return [int(voter.rpartition(":")[2]) for voter in voters.split(",")]
    except (OSError, ValueError):
        return []


def _cluster_id_in(directory: str) -> str | None:
    """Return the id in the ``meta.properties`` of the first node that has one."""
    from triokafka.broker_stub.config.properties import parse_properties

    for number in range(1, _nodes_in(directory) + 1):
        path = os.path.join(directory, f"node-{number}", "data", "meta.properties")
        try:
            with open(path, encoding="utf-8") as file:
                found = parse_properties(file.read(), source=path).get("cluster.id")
        except OSError:
            continue
        if found:
            return found
    return None


def new_id() -> str:
    """Return the text of a new id of a cluster or a directory, which no program takes for an option."""
    import uuid

    while (text := format_uuid(uuid.uuid4())).startswith("-"):
        pass
    return text


def _free_ports(host: str, count: int, *, without: set[int]) -> list[int]:
    """Return ports of ``host`` on which nothing listens. Raises `WrongUse` when there are none."""
    try:
        return free_ports(count, host, without=without)
    except OSError as error:
        raise WrongUse(f"--listen {host}: {error.strerror or error}.") from None
