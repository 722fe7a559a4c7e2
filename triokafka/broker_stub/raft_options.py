"""The configuration of the quorum from the options of a node."""

from __future__ import annotations

from uuid import UUID

from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.raft.raft_config import RaftConfig
from triokafka.broker_stub.raft.replica_key import ReplicaKey
from triokafka.broker_stub.raft.voter_set import NO_VOTERS, Voter, VoterEndpoint, VoterSet
from triokafka.errors import ConfigurationError
from triokafka.structs import Node


def has_quorum_options(config: BrokerConfig) -> bool:
    """Whether the configuration names other nodes of the quorum, or servers that know it.

    Without such a name a node with the controller role is the only voter of its own quorum.
    """
    voters = [node.node_id for node in static_voters(config)]
    return any(voter != config.node_id for voter in voters) or (
        not voters and bool(config.controller_quorum_bootstrap_servers)
    )


def static_voters(config: BrokerConfig) -> list[Node]:
    """Return the nodes of ``controller.quorum.voters``. Raises `ConfigurationError`."""
    found = []
    for entry in config.controller_quorum_voters:
        voter_id, at, address = entry.partition("@")
        if not at or not voter_id.strip().isdigit():
            raise ConfigurationError(f"controller.quorum.voters: {entry!r} is not id@host:port")
        found.append(Node(int(voter_id), *_address("controller.quorum.voters", address)))
    return found


def _address(option: str, text: str) -> tuple[str, int]:
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not port.isdigit():
        raise ConfigurationError(f"{option}: {text!r} is not host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def raft_config(config: BrokerConfig, cluster_id: str, directory_id: UUID) -> RaftConfig:
    """Return the configuration of this node of the quorum.

    Raises:
        ConfigurationError: an address is malformed.
    """
    listeners = [name.upper() for name in config.controller_listener_names]
    listener = listeners[0] if listeners else "CONTROLLER"
    voters = VoterSet.static(static_voters(config), listener)
    endpoints = _endpoints(config, listeners)
    if not has_quorum_options(config):
        voters = VoterSet([Voter(ReplicaKey(config.node_id), endpoints)])
    return RaftConfig(
        node_id=config.node_id,
        directory_id=directory_id,
        cluster_id=cluster_id,
        can_vote="controller" in config.process_roles,
        static_voters=voters if len(voters) else NO_VOTERS,
        bootstrap_servers=[
            _address("controller.quorum.bootstrap.servers", server)
            for server in config.controller_quorum_bootstrap_servers
        ],
        controller_listener=listener,
        endpoints=endpoints,
    )


def _endpoints(config: BrokerConfig, listeners: list[str]) -> tuple[VoterEndpoint, ...]:
    """Return the addresses of this node's controller listeners; without any, a name that nobody connects to."""
    return tuple(VoterEndpoint(name, "localhost", 0) for name in listeners)
