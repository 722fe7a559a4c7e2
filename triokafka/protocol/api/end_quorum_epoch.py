"""EndQuorumEpoch (API key 54): a leader of the metadata quorum resigns, so that an election starts at once (KIP-595).

Versions 0–1; flexible from 1. v1: directory ids and addresses (KIP-853).
"""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int32, String, Uuid
from triokafka.protocol.quorum_endpoints import LeaderEndpoint, NodeEndpoint


class PreferredCandidate(Struct):
    """A voter that may follow the leader."""

    candidate_id: int = field(Int32, versions="1+", doc="The voter's number.")
    candidate_directory_id: UUID = field(Uuid, versions="1+", doc="The id of the directory that holds the voter's log.")


class PartitionData(Struct):
    """The resignation of one partition's leader."""

    partition_index: int = field(Int32, doc="The partition's number.")
    leader_id: int = field(Int32, doc="The leader that resigns.")
    leader_epoch: int = field(Int32, doc="The epoch in which it led.", errors=("FencedLeaderEpochError",))
    preferred_successors: list[int] = field(
        Array(Int32),
        versions="0",
        ignorable=True,
        doc="The voters, those with the longest log first; the first starts an election at once.",
    )
    preferred_candidates: list[PreferredCandidate] = field(
        Array(PreferredCandidate),
        versions="1+",
        ignorable=True,
        doc="The voters, those with the longest log first; the first starts an election at once.",
    )


class TopicData(Struct):
    """A topic whose quorum loses its leader."""

    topic_name: str = field(String, doc="The topic's name.")
    partitions: list[PartitionData] = field(Array(PartitionData), doc="The partitions; there is only 0.")


class EndQuorumEpochRequest(Request["EndQuorumEpochResponse"], api_key=54, versions="0-1", flexible="1+"):
    """Tell the voters that the leader resigns."""

    cluster_id: str | None = fields.cluster_id(nullable="0+", default=None)
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


class EndQuorumEpochResponse(Response, api_key=54, versions="0-1", flexible="1+"):
    """Whether the voter accepts the resignation."""

    error_code: int = fields.quorum_error_code()
    topics: list[AnsweredTopic] = field(Array(AnsweredTopic), doc="The topics; there is only ``__cluster_metadata``.")
    node_endpoints: list[NodeEndpoint] = field(
        Array(NodeEndpoint), versions="1+", tag=0, doc="The addresses of the leader named in the answer."
    )
