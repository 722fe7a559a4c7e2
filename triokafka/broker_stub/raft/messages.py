"""The messages of the quorum, which all are about one partition: ``__cluster_metadata-0``.

Readers return None when a message is not about exactly this partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeAlias, TypeVar
from uuid import UUID

from triokafka import topic_names
from triokafka.broker_stub.raft.log_comparison import LogComparison
from triokafka.broker_stub.raft.raft_log_interface import SnapshotId
from triokafka.broker_stub.raft.replica_key import ReplicaKey
from triokafka.broker_stub.raft.state_transitions import Quorum
from triokafka.broker_stub.raft.states import Candidate, Endpoints, Prospective, Resigned
from triokafka.broker_stub.raft.voter_set import VoterEndpoint
from triokafka.protocol.api import (
    add_raft_voter,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    update_raft_voter,
    vote,
)
from triokafka.protocol.quorum_endpoints import LeaderEndpoint, NodeEndpoint
from triokafka.structs import Buffer

TOPIC: Final = topic_names.CLUSTER_METADATA_TOPIC
TOPIC_ID: Final = UUID(int=1)
"""The fixed id of the metadata topic."""


P = TypeVar("P")
P_co = TypeVar("P_co", covariant=True)
Requested = TypeVar("Requested", bound="_Partition")
E = TypeVar("E")


ListenerAddress: TypeAlias = LeaderEndpoint | add_raft_voter.Listener | update_raft_voter.Listener
"""The address of a node under one listener in a request."""
NodeAddress: TypeAlias = NodeEndpoint | fetch.NodeEndpoint
"""The address of a node in a response."""


class _Topic(Protocol[P_co]):
    @property
    def partitions(self) -> Sequence[P_co]: ...


class _Partition(Protocol):
    @property
    def partition_index(self) -> int: ...


class _NamedTopic(_Topic[P_co], Protocol):
    @property
    def topic_name(self) -> str: ...


# Fields


def is_cluster(requested: str | None, own: str) -> bool:
    """Whether a request is for this cluster; no id fits every cluster."""
    return requested is None or requested == own


def known_id(node_id: int) -> int | None:
    """Return a node id; None for the -1 that stands for none."""
    return None if node_id < 0 else node_id


def endpoints_of_listeners(listeners: Iterable[ListenerAddress]) -> Endpoints:
    """Return the addresses of one node by listener."""
    return tuple(VoterEndpoint(listener.name, listener.host, listener.port) for listener in listeners)


def endpoints_of_nodes(node_id: int, nodes: Iterable[NodeAddress], listener: str) -> Endpoints:
    """Return the address that a response gives for a node, under the listener that the request was sent to."""
    return tuple(VoterEndpoint(listener, node.host, node.port) for node in nodes if node.node_id == node_id >= 0)


def only_partition(topics: Sequence[_Topic[P]]) -> P | None:
    """Return the only partition of a message."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    return topics[0].partitions[0]


def requested_partition(topics: Sequence[_NamedTopic[Requested]]) -> Requested | None:
    """Return the only partition of a request."""
    partition = only_partition(topics)
    if partition is None or (topics[0].topic_name, partition.partition_index) != (TOPIC, 0):
        return None
    return partition


def _wire_id(node_id: int | None) -> int:
    return -1 if node_id is None else node_id


def _leader_endpoint(quorum: Quorum, listener: str, endpoint: Callable[..., E]) -> list[E]:
    """Return the leader's address for a response; an empty list if it is unknown."""
    node = quorum.leader_node(listener)
    return [] if node is None else [endpoint(node_id=node.node_id, host=node.host, port=node.port)]


# Fetch


def fetch_request(quorum: Quorum) -> fetch.FetchRequest:
    """Return the request of a follower for the records after its log."""
    config = quorum.config
    partition = fetch.FetchPartition(
        partition=0,
        current_leader_epoch=quorum.epoch,
        fetch_offset=quorum.log.end_offset,
        last_fetched_epoch=quorum.log.last_epoch,
        partition_max_bytes=config.fetch_max_bytes,
        replica_directory_id=config.directory_id,
        high_watermark=quorum.high_watermark,
    )
    return fetch.FetchRequest(
        cluster_id=config.cluster_id,
        replica_state=fetch.ReplicaState(replica_id=config.node_id),
        max_wait_ms=config.fetch_max_wait_ms,
        min_bytes=0,
        max_bytes=config.fetch_max_bytes,
        topics=[fetch.FetchTopic(topic=TOPIC, topic_id=TOPIC_ID, partitions=[partition])],
    )


def fetch_partition(request: fetch.FetchRequest) -> fetch.FetchPartition | None:
    """Return the only partition of a Fetch."""
    partition = only_partition(request.topics)
    if partition is None or partition.partition != 0:
        return None
    topic = request.topics[0]
    return partition if topic.topic_id == TOPIC_ID or topic.topic == TOPIC else None


def replica_id(request: fetch.FetchRequest) -> int:
    """Return the node that fetches; -1 for a consumer."""
    return request.replica_id if request.replica_id >= 0 else request.replica_state.replica_id


def fetch_response(
    quorum: Quorum, listener: str, *, error: int, comparison: LogComparison | None, records: Buffer, high_watermark: int
) -> fetch.FetchResponse:
    """Return the answer of a leader, or of a node that names the leader."""
    partition = fetch.PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=high_watermark,
        log_start_offset=quorum.log.start_offset,
        current_leader=fetch.LeaderIdAndEpoch(leader_id=_wire_id(quorum.leader_id), leader_epoch=quorum.epoch),
        aborted_transactions=None,
        records=records,
    )
    if comparison is not None and comparison.diverging is not None:
        end_offset, epoch = comparison.diverging
        partition.diverging_epoch = fetch.EpochEndOffset(epoch=epoch, end_offset=end_offset)
    if comparison is not None and comparison.snapshot is not None:
        end_offset, epoch = comparison.snapshot
        partition.snapshot_id = fetch.SnapshotId(end_offset=end_offset, epoch=epoch)
    return fetch.FetchResponse(
        session_id=0,
        responses=[fetch.FetchableTopicResponse(topic=TOPIC, topic_id=TOPIC_ID, partitions=[partition])],
        node_endpoints=_leader_endpoint(quorum, listener, fetch.NodeEndpoint),
    )


# Vote


def vote_request(quorum: Quorum, voter: ReplicaKey) -> vote.VoteRequest:
    """Return the request of a candidate, or a pre-vote of a prospective one."""
    state = quorum.state
    assert isinstance(state, (Prospective, Candidate))
    config = quorum.config
    partition = vote.PartitionData(
        partition_index=0,
        replica_epoch=state.epoch,
        replica_id=config.node_id,
        replica_directory_id=config.directory_id,
        voter_directory_id=voter.wire_directory_id,
        last_offset_epoch=quorum.log.last_epoch,
        last_offset=quorum.log.end_offset,
        pre_vote=isinstance(state, Prospective),
    )
    return vote.VoteRequest(
        cluster_id=config.cluster_id,
        voter_id=voter.node_id,
        topics=[vote.TopicData(topic_name=TOPIC, partitions=[partition])],
    )


def vote_response(quorum: Quorum, listener: str, *, error: int = 0, granted: bool = False) -> vote.VoteResponse:
    """Return the answer of a voter."""
    partition = vote.AnsweredPartition(
        partition_index=0,
        error_code=error,
        leader_id=_wire_id(quorum.leader_id),
        leader_epoch=quorum.epoch,
        vote_granted=granted,
    )
    return vote.VoteResponse(
        topics=[vote.AnsweredTopic(topic_name=TOPIC, partitions=[partition])],
        node_endpoints=_leader_endpoint(quorum, listener, NodeEndpoint),
    )


# BeginQuorumEpoch


def begin_request(quorum: Quorum, voter: ReplicaKey) -> begin_quorum_epoch.BeginQuorumEpochRequest:
    """Return the announcement of a new leader."""
    config = quorum.config
    partition = begin_quorum_epoch.PartitionData(
        partition_index=0,
        voter_directory_id=voter.wire_directory_id,
        leader_id=config.node_id,
        leader_epoch=quorum.epoch,
    )
    return begin_quorum_epoch.BeginQuorumEpochRequest(
        cluster_id=config.cluster_id,
        voter_id=voter.node_id,
        topics=[begin_quorum_epoch.TopicData(topic_name=TOPIC, partitions=[partition])],
        leader_endpoints=[LeaderEndpoint(name=name, host=host, port=port) for name, host, port in config.endpoints],
    )


def begin_response(quorum: Quorum, listener: str, *, error: int) -> begin_quorum_epoch.BeginQuorumEpochResponse:
    """Return the answer to a BeginQuorumEpoch."""
    partition = begin_quorum_epoch.AnsweredPartition(
        partition_index=0, error_code=error, leader_id=_wire_id(quorum.leader_id), leader_epoch=quorum.epoch
    )
    return begin_quorum_epoch.BeginQuorumEpochResponse(
        topics=[begin_quorum_epoch.AnsweredTopic(topic_name=TOPIC, partitions=[partition])],
        node_endpoints=_leader_endpoint(quorum, listener, NodeEndpoint),
    )


# EndQuorumEpoch


def end_request(quorum: Quorum, resigned: Resigned) -> end_quorum_epoch.EndQuorumEpochRequest:
    """Return the announcement that a leader has resigned."""
    config = quorum.config
    partition = end_quorum_epoch.PartitionData(
        partition_index=0,
        leader_id=config.node_id,
        leader_epoch=resigned.epoch,
        preferred_successors=[key.node_id for key in resigned.preferred_successors],
        preferred_candidates=[
            end_quorum_epoch.PreferredCandidate(candidate_id=key.node_id, candidate_directory_id=key.wire_directory_id)
            for key in resigned.preferred_successors
        ],
    )
    return end_quorum_epoch.EndQuorumEpochRequest(
        cluster_id=config.cluster_id,
        topics=[end_quorum_epoch.TopicData(topic_name=TOPIC, partitions=[partition])],
        leader_endpoints=[LeaderEndpoint(name=name, host=host, port=port) for name, host, port in config.endpoints],
    )


def successors(partition: end_quorum_epoch.PartitionData) -> list[ReplicaKey]:
    """Return the preferred successors of a leader that resigns, in their order."""
    if partition.preferred_candidates:
        return [
            ReplicaKey.of(replica.candidate_id, replica.candidate_directory_id)
            for replica in partition.preferred_candidates
        ]
    return [ReplicaKey(node_id) for node_id in partition.preferred_successors]


def end_response(quorum: Quorum, listener: str, *, error: int) -> end_quorum_epoch.EndQuorumEpochResponse:
    """Return the answer to an EndQuorumEpoch."""
    partition = end_quorum_epoch.AnsweredPartition(
        partition_index=0, error_code=error, leader_id=_wire_id(quorum.leader_id), leader_epoch=quorum.epoch
    )
    return end_quorum_epoch.EndQuorumEpochResponse(
        topics=[end_quorum_epoch.AnsweredTopic(topic_name=TOPIC, partitions=[partition])],
        node_endpoints=_leader_endpoint(quorum, listener, NodeEndpoint),
    )


# FetchSnapshot


def fetch_snapshot_request(
    quorum: Quorum, snapshot_id: SnapshotId, position: int
) -> fetch_snapshot.FetchSnapshotRequest:
    """Return the request for the next part of a snapshot."""
    config = quorum.config
    partition = fetch_snapshot.PartitionSnapshot(
        partition=0,
        current_leader_epoch=quorum.epoch,
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch),
        position=position,
        replica_directory_id=config.directory_id,
    )
    return fetch_snapshot.FetchSnapshotRequest(
        cluster_id=config.cluster_id,
        replica_id=config.node_id,
        max_bytes=config.fetch_snapshot_max_bytes,
        topics=[fetch_snapshot.TopicSnapshot(name=TOPIC, partitions=[partition])],
    )


def snapshot_response(
    quorum: Quorum,
    listener: str,
    topic: str = TOPIC,
    partition_index: int = 0,
    *,
    error: int = 0,
    snapshot_id: SnapshotId | None = None,
    size: int = 0,
    position: int = 0,
    data: Buffer = b"",
) -> fetch_snapshot.FetchSnapshotResponse:
    """Return a part of a snapshot, or an error."""
    end_offset, epoch = snapshot_id if snapshot_id is not None else (0, 0)
    partition = fetch_snapshot.AnsweredPartition(
        index=partition_index,
        error_code=error,
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=end_offset, epoch=epoch),
        current_leader=fetch_snapshot.LeaderIdAndEpoch(leader_id=_wire_id(quorum.leader_id), leader_epoch=quorum.epoch),
        size=size,
        position=position,
        unaligned_records=data,
    )
    return fetch_snapshot.FetchSnapshotResponse(
        topics=[fetch_snapshot.AnsweredTopic(name=topic, partitions=[partition])],
        node_endpoints=_leader_endpoint(quorum, listener, NodeEndpoint),
    )


# AddRaftVoter, RemoveRaftVoter


def join_request(quorum: Quorum) -> add_raft_voter.AddRaftVoterRequest | remove_raft_voter.RemoveRaftVoterRequest:
    """Return the request of a controller that wants to vote: first it removes itself with another directory."""
    config = quorum.config
    former = quorum.voters.get(config.node_id)
    if former is not None:
        return remove_raft_voter.RemoveRaftVoterRequest(
            cluster_id=config.cluster_id, voter_id=config.node_id, voter_directory_id=former.key.wire_directory_id
        )
    return add_raft_voter.AddRaftVoterRequest(
        cluster_id=config.cluster_id,
        timeout_ms=config.request_timeout_ms,
        voter_id=config.node_id,
        voter_directory_id=config.directory_id,
        listeners=[add_raft_voter.Listener(name=name, host=host, port=port) for name, host, port in config.endpoints],
        ack_when_committed=False,
    )


# UpdateRaftVoter


def update_voter_request(quorum: Quorum) -> update_raft_voter.UpdateRaftVoterRequest:
    """Return the request of a voter whose endpoints or versions have changed."""
    config = quorum.config
    return update_raft_voter.UpdateRaftVoterRequest(
        cluster_id=config.cluster_id,
        current_leader_epoch=quorum.epoch,
        voter_id=config.node_id,
        voter_directory_id=config.directory_id,
        listeners=[
            update_raft_voter.Listener(name=name, host=host, port=port) for name, host, port in config.endpoints
        ],
        kraft_version_feature=update_raft_voter.KRaftVersionFeature(
            min_supported_version=config.min_kraft_version, max_supported_version=config.max_kraft_version
        ),
    )


def kraft_versions(request: update_raft_voter.UpdateRaftVoterRequest) -> tuple[int, int]:
    """Return the range of ``kraft.version`` that a voter supports."""
    feature = request.kraft_version_feature
    return feature.min_supported_version, feature.max_supported_version


def update_voter_response(quorum: Quorum, listener: str, *, error: int) -> update_raft_voter.UpdateRaftVoterResponse:
    """Return the answer to an UpdateRaftVoter."""
    node = quorum.leader_node(listener)
    return update_raft_voter.UpdateRaftVoterResponse(
        error_code=error,
        current_leader=update_raft_voter.CurrentLeader(
            leader_id=_wire_id(quorum.leader_id),
            leader_epoch=quorum.epoch,
            host="" if node is None else node.host,
            port=0 if node is None else node.port,
        ),
    )
