"""The leader's side of FetchSnapshot: parts of a snapshot for a follower whose records are gone from the log."""

from __future__ import annotations

import logging

from triokafka import errors
from triokafka.broker_stub.raft import messages
from triokafka.broker_stub.raft.fetch_server import leader_error
from triokafka.broker_stub.raft.leader_state import Leader
from triokafka.broker_stub.raft.raft_log_interface import SnapshotId
from triokafka.broker_stub.raft.replica_key import ReplicaKey
from triokafka.broker_stub.raft.state_transitions import Quorum
from triokafka.errors import CorruptRecordError, KafkaStorageError
from triokafka.protocol.api.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse

logger = logging.getLogger(__name__)


def fetch_snapshot(
    quorum: Quorum, request: FetchSnapshotRequest, *, listener: str, now: float
) -> FetchSnapshotResponse:
    """Return a part of a snapshot from a position, at most ``max_bytes`` of it.

    Partition errors: UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER,
    SNAPSHOT_NOT_FOUND, POSITION_OUT_OF_RANGE. Of the whole request: INCONSISTENT_CLUSTER_ID, INVALID_REQUEST.
    """
    if not messages.is_cluster(request.cluster_id, quorum.config.cluster_id):
        return FetchSnapshotResponse(error_code=errors.InconsistentClusterIdError.code)
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return FetchSnapshotResponse(error_code=errors.InvalidRequestError.code)
    topic, partition = request.topics[0], request.topics[0].partitions[0]
    if (topic.name, partition.partition) != (messages.TOPIC, 0):
        return messages.snapshot_response(
            quorum, listener, topic.name, partition.partition, error=errors.UnknownTopicOrPartitionError.code
        )
    error = leader_error(quorum, partition.current_leader_epoch)
    leader = quorum.state
    if error or not isinstance(leader, Leader):
        return messages.snapshot_response(quorum, listener, error=error)
    snapshot_id = SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
    size = quorum.log.snapshot_size(snapshot_id)
    if size is None or snapshot_id.end_offset == 0:  # the snapshot 0-0 belongs to one node's directory
        return messages.snapshot_response(quorum, listener, error=errors.SnapshotNotFoundError.code)
    if not 0 <= partition.position < size:
        return messages.snapshot_response(quorum, listener, error=errors.PositionOutOfRangeError.code)
    most = max(1, min(request.max_bytes, quorum.config.fetch_snapshot_max_bytes))
    try:
        data = quorum.log.read_snapshot(snapshot_id, partition.position, most)
    except (CorruptRecordError, KafkaStorageError) as failure:
        logger.error("Node %d: %s. Another snapshot is taken. Check the disk.", quorum.config.node_id, failure)
        quorum.effects.event(lambda listener: listener.snapshot_needed())
        return messages.snapshot_response(quorum, listener, error=errors.SnapshotNotFoundError.code)
    # A follower that loads a snapshot follows this leader, even though it fetches no records meanwhile.
    leader.alive(ReplicaKey.of(request.replica_id, partition.replica_directory_id), now)
    return messages.snapshot_response(
        quorum, listener, snapshot_id=snapshot_id, size=size, position=partition.position, data=data
    )
