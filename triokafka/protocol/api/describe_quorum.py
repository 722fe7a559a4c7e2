"""DescribeQuorum (API key 55): the state of the metadata quorum (KIP-595).

Versions 0–2; flexible. v1: times of the voters' last fetches (KIP-836). v2: directories and addresses (KIP-853).
"""

from __future__ import annotations

from functools import partial
from uuid import UUID

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int32, Int64, String, UInt16, Uuid

_error_code = partial(
    field,
    Int16,
    doc="The error code; 0 means success.",
    errors=(
        "NotLeaderForPartitionError",
        "UnknownTopicOrPartitionError",
        "ClusterAuthorizationFailedError",
        "InvalidRequestError",
    ),
)


class PartitionData(Struct):
    """One of its partitions."""

    partition_index: int = field(Int32, doc="The partition's number.")


class TopicData(Struct):
    """A topic whose quorum to describe."""

    topic_name: str = field(String, doc="The topic's name.")
    partitions: list[PartitionData] = field(Array(PartitionData), doc="The partitions; there is only 0.")


class DescribeQuorumRequest(Request["DescribeQuorumResponse"], api_key=55, versions="0-2", flexible="0+"):
    """Ask for the leader, the voters and the observers."""

    topics: list[TopicData] = field(Array(TopicData), doc="The topics; there is only ``__cluster_metadata``.")


class ReplicaState(Struct):
    """A voter or an observer, and its log end offset."""

    replica_id: int = field(Int32, doc="The node's number.")
    replica_directory_id: UUID = field(Uuid, versions="2+", doc="The id of the directory that holds the node's log.")
    log_end_offset: int = field(Int64, doc="The offset after its last record; -1 when unknown.")
    last_fetch_timestamp: int = field(
        Int64,
        versions="1+",
        ignorable=True,
        default=-1,
        doc="When it fetched last, by the leader's wall clock in ms; -1 for the leader, or when unknown.",
    )
    last_caught_up_timestamp: int = field(
        Int64,
        versions="1+",
        ignorable=True,
        default=-1,
        doc="When it had everything last, by the leader's wall clock in ms; -1 when unknown.",
    )


class DescribedPartition(Struct):
    """The quorum of one partition."""

    partition_index: int = field(Int32, doc="The partition's number.")
    error_code: int = _error_code()
    error_message: str | None = fields.error_message(versions="2+", nullable="2+", ignorable=True)
    leader_id: int = field(Int32, doc="The node that leads; -1 when that is not known.")
    leader_epoch: int = field(Int32, doc="The epoch of the quorum.")
    high_watermark: int = field(Int64, doc="The offset up to which records are committed.")
    current_voters: list[ReplicaState] = field(Array(ReplicaState), doc="The nodes that vote.")
    observers: list[ReplicaState] = field(Array(ReplicaState), doc="The nodes that follow without a vote: brokers.")


class DescribedTopic(Struct):
    """A topic with a quorum."""

    topic_name: str = field(String, doc="The topic's name.")
    partitions: list[DescribedPartition] = field(Array(DescribedPartition), doc="The partitions; there is only 0.")


class Listener(Struct):
    """A listener of the node."""

    name: str = field(String, versions="2+", doc="The listener's name.")
    host: str = field(String, versions="2+", doc="The host to connect to.")
    port: int = field(UInt16, versions="2+", doc="The port to connect to.")


class Node(Struct):
    """A node of the quorum."""

    node_id: int = field(Int32, versions="2+", doc="The node's number.")
    listeners: list[Listener] = field(Array(Listener), versions="2+", doc="Its addresses.")


class DescribeQuorumResponse(Response, api_key=55, versions="0-2", flexible="0+"):
    """The state of the quorum."""

    error_code: int = _error_code()
    error_message: str | None = fields.error_message(versions="2+", nullable="2+", ignorable=True)
    topics: list[DescribedTopic] = field(Array(DescribedTopic), doc="The topics; there is only ``__cluster_metadata``.")
    nodes: list[Node] = field(Array(Node), versions="2+", doc="The voters.")
