"""BeginQuorumEpoch (API key 53): a new leader of the metadata quorum tells the voters about its epoch (KIP-595).

Versions 0–1; flexible from 1. v1: directory ids and addresses (KIP-853).
"""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int32, String
from triokafka.protocol.quorum_endpoints import LeaderEndpoint, NodeEndpoint


class PartitionData(Struct):
    """The leader of one partition's quorum."""

    partition_index: int = field(Int32, doc="The partition's number.")
    voter_directory_id: UUID = fields.voter_directory_id(versions="1+", ignorable=True)
    leader_id: int = field(Int32, doc="The new leader, which sends the request.")
    leader_epoch: int = field(Int32, doc="The epoch in which it leads.", errors=("FencedLeaderEpochError",))


class TopicData(Struct):
    """A topic whose quorum has a new leader."""

    topic_name: str = field(String, doc="The topic's name.")
    partitions: list[PartitionData] = field(Array(PartitionData), doc="The partitions; there is only 0.")


class BeginQuorumEpochRequest(Request["BeginQuorumEpochResponse"], api_key=53, versions="0-1", flexible="1+"):
    """Tell one voter that the sender leads."""

    cluster_id: str | None = fields.cluster_id(nullable="0+", default=None)
    voter_id: int = fields.voter_id(versions="1+", ignorable=True)
    topics: list[TopicData] = field(Array(TopicData), doc="The topics; there is only ``__cluster_metadata``.")
    leader_endpoints: list[LeaderEndpoint] = field(
        Array(LeaderEndpoint), versions="1+", ignorable=True, doc="The addresses on which the leader serves the quorum."
    )


class AnsweredPartition(Struct):
    """The answer for the quorum of one partition."""

    partition_index: int = field(Int32, doc="The partition's number.")
    error_code: int = field(
        Int16,
        doc="The error code of the partition; 0 means success.",
        errors=(
            "FencedLeaderEpochError",
            "InvalidRequestError",
            "InvalidVoterKeyError",
            "UnknownTopicOrPartitionError",
            "BrokerNotAvailableError",
        ),
    )
    leader_id: int = field(Int32, doc="The leader that the answering node knows; -1 for none.")
    leader_epoch: int = field(Int32, doc="The latest epoch that the answering node knows.")


class AnsweredTopic(Struct):
    """The answer for a topic."""

    topic_name: str = field(String, doc="The topic's name.")
    partitions: list[AnsweredPartition] = field(Array(AnsweredPartition), doc="The partitions; there is only 0.")


class BeginQuorumEpochResponse(Response, api_key=53, versions="0-1", flexible="1+"):
    """Whether the voter follows the leader."""

    error_code: int = fields.quorum_error_code()
    topics: list[AnsweredTopic] = field(Array(AnsweredTopic), doc="The topics; there is only ``__cluster_metadata``.")
    node_endpoints: list[NodeEndpoint] = field(
        Array(NodeEndpoint), versions="1+", tag=0, doc="The addresses of the leader named in the answer."
    )
