"""AlterPartitionReassignments (API key 45): move partitions to other brokers (KIP-455).

Versions 0–1; flexible. v1: the number of replicas can be held (KIP-860).
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Int16, Int32, String


class ReassignablePartition(Struct):
    """One partition and its new replicas."""

    partition_index: int = field(Int32, doc="The partition's number.")
    replicas: list[int] | None = field(
        Array(Int32),
        nullable="0+",
        default=None,
        doc="The new replicas, the preferred leader first; null cancels the reassignment.",
    )


class ReassignableTopic(Struct):
    """A topic and its partitions to move."""

    name: str = field(String, doc="The topic's name.")
    partitions: list[ReassignablePartition] = field(Array(ReassignablePartition), doc="The partitions.")


class AlterPartitionReassignmentsRequest(
    Request["AlterPartitionReassignmentsResponse"], api_key=45, versions="0-1", flexible="0+"
):
    """Begin or cancel reassignments."""

    timeout_ms: int = fields.timeout_ms(default=60000, errors=())
    allow_replication_factor_change: bool = field(
        Boolean, versions="1+", default=True, doc="Whether the number of replicas may change."
    )
    topics: list[ReassignableTopic] = field(Array(ReassignableTopic), doc="The topics.")


class ReassignablePartitionResponse(Struct):
    """The outcome for one partition."""

    partition_index: int = field(Int32, doc="The partition's number.")
    error_code: int = field(
        Int16,
        doc="The error code; 0 means success.",
        errors=(
            "UnknownTopicOrPartitionError",
            "InvalidReplicationAssignmentError",
            "NoReassignmentInProgressError",
            "InvalidReplicationFactorError",
            "InvalidTopicError",
        ),
    )
    error_message: str | None = fields.error_message(nullable="0+")


class ReassignableTopicResponse(Struct):
    """The outcome for one topic."""

    name: str = field(String, doc="The topic's name.")
    partitions: list[ReassignablePartitionResponse] = field(
        Array(ReassignablePartitionResponse), doc="The results by partition."
    )


class AlterPartitionReassignmentsResponse(Response, api_key=45, versions="0-1", flexible="0+"):
    """One result per partition."""

    throttle_time_ms: int = fields.throttle_time_ms()
    allow_replication_factor_change: bool = field(
        Boolean,
        versions="1+",
        ignorable=True,
        default=True,
        doc="Whether the number of replicas may change.",
    )
    error_code: int = fields.reassignments_error_code()
    error_message: str | None = fields.error_message(nullable="0+")
    responses: list[ReassignableTopicResponse] = field(Array(ReassignableTopicResponse), doc="The results by topic.")
