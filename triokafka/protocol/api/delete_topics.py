"""DeleteTopics (API key 20): delete topics with all their records.

Versions 1–6; flexible from 4. v1: throttle time. v3: TopicDeletionDisabledError. v5: error message, and
ThrottlingQuotaExceededError (KIP-599). v6: topics by name or by id (KIP-516).
"""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, String, Uuid


class DeleteTopicState(Struct):
    """A topic, by name or by id."""

    name: str | None = field(
        String,
        versions="6+",
        nullable="6+",
        default=None,
        doc="The topic's name; null to delete by id.",
        errors=("UnknownTopicOrPartitionError", "TopicAuthorizationFailedError"),
    )
    topic_id: UUID = field(
        Uuid,
        versions="6+",
        doc="The topic's id; nil to delete by name.",
        errors=("UnknownTopicIdError",),
    )


class DeleteTopicsRequest(Request["DeleteTopicsResponse"], api_key=20, versions="1-6", flexible="4+"):
    """Delete topics."""

    topics: list[DeleteTopicState] = field(Array(DeleteTopicState), versions="6+", doc="The topics.")
    topic_names: list[str] = field(
        Array(String),
        versions="0-5",
        ignorable=True,
        doc="The topics' names.",
        errors=("UnknownTopicOrPartitionError", "TopicAuthorizationFailedError"),
    )
    timeout_ms: int = fields.timeout_ms()


class DeletableTopicResult(Struct):
    """The outcome for one topic."""

    name: str | None = field(
        String,
        nullable="6+",
        doc="The topic's name; null if the request named an unknown topic id.",
    )
    topic_id: UUID = field(Uuid, versions="6+", ignorable=True, doc="The topic's id.")
    error_code: int = field(
        Int16,
        doc="The error code of the topic; 0 if it was deleted.",
        errors=(
            "UnknownTopicOrPartitionError",
            "UnknownTopicIdError",
            "TopicAuthorizationFailedError",
            "TopicDeletionDisabledError",
            "InvalidRequestError",
            "NotControllerError",
            "RequestTimedOutError",
            "ThrottlingQuotaExceededError",
            "UnsupportedVersionError",
        ),
    )
    error_message: str | None = fields.error_message(versions="5+", nullable="5+", ignorable=True, default=None)


class DeleteTopicsResponse(Response, api_key=20, versions="1-6", flexible="4+"):
    """One result per topic of the request."""

    throttle_time_ms: int = fields.throttle_time_ms(versions="1+", ignorable=True)
    responses: list[DeletableTopicResult] = field(Array(DeletableTopicResult), doc="The results.")
