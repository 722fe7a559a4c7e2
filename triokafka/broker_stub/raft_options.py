"""The configuration of the quorum from the options of a node."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.raft.raft_config import RaftConfig
from triokafka.broker_stub.raft.replica_key import ReplicaKey
from triokafka.broker_stub.raft.voter_set import Voter, VoterEndpoint, VoterSet


def has_other_nodes(config: BrokerConfig) -> bool:
    """Whether the configuration names other nodes of the quorum, or servers that know it.

    Without such a name a node with the controller role is the only voter of its own quorum.
    """
    voters = config.quorum_voters
    if voters:
        return any(voter.node_id != config.node_id for voter in voters)
    return bool(config.quorum_bootstrap_servers) or not config.is_controller


def controller_endpoints(config: BrokerConfig) -> tuple[VoterEndpoint, ...]:
    """Return the configured addresses of this node's controller listeners.

    A quorum of one without such a listener has an address to which no node connects.
    """
    advertised = config.advertised
    found = []
    for listener in config.controller_listeners:
        address = advertised.get(listener.name, listener)
        found.append(VoterEndpoint(listener.name, address.host or "localhost", address.port))
    if found or not config.is_controller:
        return tuple(found)
    return tuple(VoterEndpoint(name.upper(), "localhost", 0) for name in config.controller_listener_names)


def raft_config(
    config: BrokerConfig,
    cluster_id: str,
    directory_id: UUID,
    endpoints: Sequence[VoterEndpoint],
    *,
    elects_at_once: bool = False,
) -> RaftConfig:
    """Return the configuration of this node of the quorum; ``endpoints`` are those of its controller listeners."""
    listener = config.controller_listener_names[0].upper()
    if has_other_nodes(config):
        voters = VoterSet.static(config.quorum_voters, listener)
    else:
        voters = VoterSet([Voter(ReplicaKey(config.node_id), tuple(endpoints))])
    return RaftConfig(
        node_id=config.node_id,
        directory_id=directory_id,
        cluster_id=cluster_id,
        can_vote=config.is_controller,
        static_voters=voters,
        bootstrap_servers=config.quorum_bootstrap_servers,
        controller_listener=listener,
        endpoints=tuple(endpoints),
        elects_at_once=elects_at_once,
        auto_join=config.controller_quorum_auto_join_enable,
        election_timeout_ms=config.controller_quorum_election_timeout_ms,
        fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
        election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
        request_timeout_ms=config.controller_quorum_request_timeout_ms,
        retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
        append_linger_ms=config.controller_quorum_append_linger_ms,
        fetch_max_bytes=config.controller_quorum_fetch_max_bytes,
        fetch_snapshot_max_bytes=config.controller_quorum_fetch_snapshot_max_bytes,
    )
