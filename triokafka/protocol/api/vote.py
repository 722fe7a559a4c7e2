"""Vote (API key 52): a candidate of the metadata quorum asks a voter for its vote (KIP-595).

Versions 0–2; flexible. v1: directory ids and addresses (KIP-853). v2: pre-votes (KIP-996).
"""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Int16, Int32, Int64, String, Uuid
from triokafka.protocol.quorum_endpoints import NodeEndpoint


class PartitionData(Struct):
    """The candidate's claim for one partition."""

    partition_index: int = field(Int32, doc="The partition's number.")
    replica_epoch: int = field(
        Int32, doc="The epoch of the election; in a pre-vote the sender's epoch, which it has not raised yet."
    )
    replica_id: int = field(Int32, doc="The node that asks for the vote.")
    replica_directory_id: UUID = field(
        Uuid, versions="1+", ignorable=True, doc="The id of the directory that holds the sender's log."
    )
    voter_directory_id: UUID = fields.voter_directory_id(versions="1+", ignorable=True)
    last_offset_epoch: int = field(Int32, doc="The epoch of the last record in the sender's log.")
    last_offset: int = field(Int64, doc="The log end offset of the sender.")
    pre_vote: bool = field(
        Boolean, versions="2+", doc="Whether the sender only asks if it would get the vote (KIP-996)."
    )


class TopicData(Struct):
    """A topic whose quorum elects a leader."""

    topic_name: str = field(String, doc="The topic's name.")
    partitions: list[PartitionData] = field(Array(PartitionData), doc="The partitions; there is only 0.")


class VoteRequest(Request["VoteResponse"], api_key=52, versions="0-2", flexible="0+"):
    """Ask one voter for its vote, or whether it would vote."""

    cluster_id: str | None = fields.cluster_id(nullable="0+", default=None)
    voter_id: int = fields.voter_id(versions="1+", ignorable=True)
    topics: list[TopicData] = field(Array(TopicData), doc="The topics; there is only ``__cluster_metadata``.")


class AnsweredPartition(Struct):
    """The answer for the quorum of one partition."""

    partition_index: int = field(Int32, doc="The partition's number.")
    error_code: int = field(
        Int16,
        doc="The error code of the partition; 0 means success.",
        errors=(
            "FencedLeaderEpochError",
            "UnknownLeaderEpochError",
            "InvalidRequestError",
            "InvalidVoterKeyError",
            "UnknownTopicOrPartitionError",
            "BrokerNotAvailableError",
        ),
    )
    leader_id: int = field(Int32, doc="The leader that the answering node knows; -1 for none.")
    leader_epoch: int = field(Int32, doc="The latest epoch that the answering node knows.")
    vote_granted: bool = field(Boolean, doc="Whether the voter votes for the sender.")


class AnsweredTopic(Struct):
    """The answer for a topic."""

    topic_name: str = field(String, doc="The topic's name.")
    partitions: list[AnsweredPartition] = field(Array(AnsweredPartition), doc="The partitions; there is only 0.")


class VoteResponse(Response, api_key=52, versions="0-2", flexible="0+"):
    """Whether the voter grants its vote, and the leader that it knows."""

    error_code: int = fields.quorum_error_code()
    topics: list[AnsweredTopic] = field(Array(AnsweredTopic), doc="The topics; there is only ``__cluster_metadata``.")
    node_endpoints: list[NodeEndpoint] = field(
        Array(NodeEndpoint), versions="1+", tag=0, doc="The addresses of the leader named in the answer."
    )
