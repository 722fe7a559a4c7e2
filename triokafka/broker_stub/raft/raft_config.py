"""The configuration of one node of the quorum."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from triokafka.broker_stub.raft.replica_key import ReplicaKey
from triokafka.broker_stub.raft.voter_set import NO_VOTERS, Voter, VoterEndpoint, VoterSet
from triokafka.named_tuple import NamedTuple
from triokafka.structs import Node


class RaftConfig(NamedTuple):
    """The configuration of a node of the quorum.

    Args:
        node_id: ``node.id``.
        directory_id: the id of the directory that holds the metadata log.
        cluster_id: requests with another cluster id are refused with `InconsistentClusterIdError`.
        can_vote: this node has the controller role. Other nodes only observe.
        static_voters: ``controller.quorum.voters``; empty with a dynamic quorum.
        bootstrap_servers: ``controller.quorum.bootstrap.servers``, as host and port.
        controller_listener: the name of the first controller listener, for requests between the nodes.
        endpoints: this node's own controller listeners with their advertised addresses.
        elects_at_once: begin the first election of a new quorum without waiting for the election timeout. For tests, at
            most one voter of a quorum.
        auto_join: ``controller.quorum.auto.join.enable``: a controller without a vote becomes a voter (KIP-1186).
        election_timeout_ms: ``controller.quorum.election.timeout.ms``.
        fetch_timeout_ms: ``controller.quorum.fetch.timeout.ms``.
        election_backoff_max_ms: ``controller.quorum.election.backoff.max.ms``.
        request_timeout_ms: ``controller.quorum.request.timeout.ms``.
        retry_backoff_ms: ``controller.quorum.retry.backoff.ms``.
        append_linger_ms: ``controller.quorum.append.linger.ms``: the least time between two syncs of a leader that has
            followers.
        fetch_max_wait_ms: how long the leader may hold a Fetch that finds nothing.
        fetch_max_bytes: ``controller.quorum.fetch.max.bytes``.
        fetch_snapshot_max_bytes: ``controller.quorum.fetch.snapshot.max.bytes``.
        min_kraft_version, max_kraft_version: the supported range of ``kraft.version``.
    """

    node_id: int
    directory_id: UUID
    cluster_id: str
    can_vote: bool = True
    static_voters: VoterSet = NO_VOTERS
    bootstrap_servers: Sequence[tuple[str, int]] = ()
    controller_listener: str = "CONTROLLER"
    endpoints: tuple[VoterEndpoint, ...] = ()
    auto_join: bool = False
    elects_at_once: bool = False
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    append_linger_ms: int = 0
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 1 << 20
    fetch_snapshot_max_bytes: int = 1 << 20
    min_kraft_version: int = 0
    max_kraft_version: int = 1

    @property
    def key(self) -> ReplicaKey:
        """The identity of this node's replica."""
        return ReplicaKey(self.node_id, self.directory_id)

    @property
    def voter(self) -> Voter:
        """This node as a voter record describes it."""
        return Voter(self.key, self.endpoints, self.min_kraft_version, self.max_kraft_version)

    @property
    def bootstrap_nodes(self) -> list[Node]:
        """The other servers to ask for the leader while no leader is known; unknown ids count down from -2."""
        own = {(endpoint.host, endpoint.port) for endpoint in self.endpoints}
        if self.bootstrap_servers:
            nodes = [Node(-2 - index, host, port) for index, (host, port) in enumerate(self.bootstrap_servers)]
        else:
            found = (voter.node(self.controller_listener) for voter in self.static_voters)
            nodes = [node for node in found if node is not None and node.node_id != self.node_id]
        return [node for node in nodes if (node.host, node.port) not in own]
