"""ElectLeaders (API key 43): have partitions led by their first replica, or by any that is left (KIP-183, KIP-460).

Versions 0–2; flexible from 2. v1: elections of any replica, and an error of the whole request.
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int8, Int16, Int32, String


class TopicPartitions(Struct):
    """A topic and some of its partitions."""

    topic: str = field(String, doc="The topic's name.")
    partitions: list[int] = field(Array(Int32), doc="Numbers of the partitions.")


class ElectLeadersRequest(Request["ElectLeadersResponse"], api_key=43, versions="0-2", flexible="2+"):
    """Elect leaders."""

    election_type: int = field(
        Int8,
        versions="1+",
        doc="The election type: 0 preferred, the first replica of the partition; 1 unclean, the first "
        "live replica if none is in sync.",
    )
    topic_partitions: list[TopicPartitions] | None = field(
        Array(TopicPartitions), nullable="0+", doc="The partitions; null for all."
    )
    timeout_ms: int = fields.timeout_ms(default=60000, errors=())


class PartitionResult(Struct):
    """The outcome for one partition."""

    partition_id: int = field(Int32, doc="The partition's number.")
    error_code: int = field(
        Int16,
        doc="The error code; 0 means success.",
        errors=(
            "ElectionNotNeededError",
            "PreferredLeaderNotAvailableError",
            "EligibleLeadersNotAvailableError",
            "UnknownTopicOrPartitionError",
        ),
    )
    error_message: str | None = fields.error_message(nullable="0+")


class ReplicaElectionResult(Struct):
    """The outcome for one topic."""

    topic: str = field(String, doc="The topic's name.")
    partition_result: list[PartitionResult] = field(Array(PartitionResult), doc="The results by partition.")


class ElectLeadersResponse(Response, api_key=43, versions="0-2", flexible="2+"):
    """One result per partition that the request names, or whose leader has changed."""

    throttle_time_ms: int = fields.throttle_time_ms()
    error_code: int = field(
        Int16,
        versions="1+",
        doc="The error code; 0 means success.",
        errors=(
            "ClusterAuthorizationFailedError",
            "InvalidRequestError",
            "NotControllerError",
        ),
    )
    replica_election_results: list[ReplicaElectionResult] = field(
        Array(ReplicaElectionResult), doc="The results by topic."
    )
