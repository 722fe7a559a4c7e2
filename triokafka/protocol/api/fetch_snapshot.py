"""FetchSnapshot (API key 59): a replica of the metadata log reads a part of a snapshot (KIP-630).

Versions 0–1; flexible. v1: directory ids and addresses (KIP-853).
"""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int32, Int64, Records, String, Uuid
from triokafka.protocol.quorum_endpoints import NodeEndpoint
from triokafka.structs import Buffer


class SnapshotId(Struct):
    """The records that a snapshot replaces."""

    end_offset: int = field(Int64, doc="The offset after the last record that the snapshot contains.")
    epoch: int = field(Int32, doc="The epoch of that record.")


class PartitionSnapshot(Struct):
    """The snapshot and the position to read."""

    partition: int = field(Int32, doc="The partition's number.")
    current_leader_epoch: int = field(
        Int32,
        doc="The leader epoch that the replica knows.",
        errors=("FencedLeaderEpochError", "UnknownLeaderEpochError"),
    )
    snapshot_id: SnapshotId = field(SnapshotId, doc="The snapshot.", errors=("SnapshotNotFoundError",))
    position: int = field(
        Int64,
        doc="The position in the snapshot's file at which to start, in bytes.",
        errors=("PositionOutOfRangeError",),
    )
    replica_directory_id: UUID = field(
        Uuid, versions="1+", tag=0, ignorable=True, doc="The id of the directory that holds the replica's log."
    )


class TopicSnapshot(Struct):
    """A topic whose snapshot to read."""

    name: str = field(String, doc="The topic's name.")
    partitions: list[PartitionSnapshot] = field(Array(PartitionSnapshot), doc="The partitions; there is only 0.")


class FetchSnapshotRequest(Request["FetchSnapshotResponse"], api_key=59, versions="0-1", flexible="0+"):
    """Read a part of a snapshot."""

    cluster_id: str | None = field(
        String,
        nullable="0+",
        tag=0,
        default=None,
        doc="The cluster that the replica belongs to; null when it does not know.",
        errors=("InconsistentClusterIdError",),
    )
    replica_id: int = field(Int32, default=-1, doc="The node that reads.")
    max_bytes: int = field(Int32, default=2**31 - 1, doc="At most how many bytes to return in all.")
    topics: list[TopicSnapshot] = field(Array(TopicSnapshot), doc="The topics; there is only ``__cluster_metadata``.")


class LeaderIdAndEpoch(Struct):
    """The leader that the answering node knows."""

    leader_id: int = field(Int32, doc="The leader; -1 for none.")
    leader_epoch: int = field(Int32, doc="The latest epoch that the answering node knows.")


class AnsweredPartition(Struct):
    """A part of one partition's snapshot."""

    index: int = field(Int32, doc="The partition's number.")
    error_code: int = field(
        Int16,
        doc="The error code of the partition; 0 means success.",
        errors=(
            "FencedLeaderEpochError",
            "UnknownLeaderEpochError",
            "NotLeaderForPartitionError",
            "SnapshotNotFoundError",
            "PositionOutOfRangeError",
            "UnknownTopicOrPartitionError",
            "InvalidRequestError",
        ),
    )
    snapshot_id: SnapshotId = field(SnapshotId, doc="The snapshot that was read.")
    current_leader: LeaderIdAndEpoch = field(
        LeaderIdAndEpoch, tag=0, doc="The quorum's leader, when another node than this one leads."
    )
    size: int = field(Int64, doc="The size of the whole snapshot in bytes.")
    position: int = field(Int64, doc="The position of the first byte returned.")
    unaligned_records: Buffer | None = field(
        Records, doc="The bytes of the snapshot; the first and the last batch may be incomplete."
    )


class AnsweredTopic(Struct):
    """The parts of one topic's snapshots."""

    name: str = field(String, doc="The topic's name.")
    partitions: list[AnsweredPartition] = field(Array(AnsweredPartition), doc="The partitions; there is only 0.")


class FetchSnapshotResponse(Response, api_key=59, versions="0-1", flexible="0+"):
    """A part of each snapshot."""

    throttle_time_ms: int = fields.throttle_time_ms(ignorable=True)
    error_code: int = fields.quorum_error_code()
    topics: list[AnsweredTopic] = field(Array(AnsweredTopic), doc="The topics; there is only ``__cluster_metadata``.")
    node_endpoints: list[NodeEndpoint] = field(
        Array(NodeEndpoint), versions="1+", tag=0, doc="The addresses of the leader named in the answer."
    )
