"""CreatePartitions (API key 37): give topics more partitions.

Versions 0–3; flexible from 2. v3: ThrottlingQuotaExceededError (KIP-599).
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Int16, Int32, String


class CreatePartitionsAssignment(Struct):
    """The brokers of one new partition."""

    broker_ids: list[int] = field(Array(Int32), doc="The brokers, the preferred leader first.")


class CreatePartitionsTopic(Struct):
    """A topic and its new number of partitions."""

    name: str = fields.topic_name()
    count: int = field(
        Int32,
        doc="The new total number of partitions.",
        errors=("InvalidPartitionsError",),
    )
    assignments: list[CreatePartitionsAssignment] | None = field(
        Array(CreatePartitionsAssignment),
        nullable="0+",
        doc="The brokers of the new partitions by hand; null to let the controller choose.",
        errors=("InvalidReplicationAssignmentError",),
    )


class CreatePartitionsRequest(Request["CreatePartitionsResponse"], api_key=37, versions="0-3", flexible="2+"):
    """Add partitions."""

    topics: list[CreatePartitionsTopic] = field(Array(CreatePartitionsTopic), doc="The topics.")
    timeout_ms: int = fields.timeout_ms()
    validate_only: bool = field(Boolean, doc="Whether to validate only, without a change.")


class CreatePartitionsTopicResult(Struct):
    """The outcome for one topic."""

    name: str = field(String, doc="The topic's name.")
    error_code: int = field(
        Int16,
        doc="The error code of the topic; 0 if the partitions were added, or validated.",
        errors=(
            "UnknownTopicOrPartitionError",
            "InvalidPartitionsError",
            "InvalidReplicationAssignmentError",
            "InvalidRequestError",
            "ReassignmentInProgressError",
            "NotControllerError",
            "TopicAuthorizationFailedError",
            "ThrottlingQuotaExceededError",
        ),
    )
    error_message: str | None = fields.error_message(nullable="0+", default=None)


class CreatePartitionsResponse(Response, api_key=37, versions="0-3", flexible="2+"):
    """One result per topic of the request."""

    throttle_time_ms: int = fields.throttle_time_ms()
    results: list[CreatePartitionsTopicResult] = field(Array(CreatePartitionsTopicResult), doc="The results.")
