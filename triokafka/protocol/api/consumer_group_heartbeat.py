"""ConsumerGroupHeartbeat (API key 68): the one request of a consumer under the new protocol (KIP-848).

With it a member joins, reports its subscription and its partitions, receives its assignment, and leaves.

Versions 0–1; all are flexible. Version 1 adds the regular expression, and member ids that the consumer makes itself
(KIP-1082).
"""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int32, String, Uuid


class TopicPartitions(Struct):
    """Some partitions of a topic."""

    topic_id: UUID = field(Uuid, doc="The topic's id.")
    partitions: list[int] = field(Array(Int32), doc="Numbers of the partitions.")


class ConsumerGroupHeartbeatRequest(
    Request["ConsumerGroupHeartbeatResponse"], api_key=68, versions="0-1", flexible="0+"
):
    """The member is alive. Fields that have not changed since the last heartbeat may be left out."""

    group_id: str = field(String, doc="The group's id.")
    member_id: str = field(String, doc="The member's id; it keeps it as long as it lives.")
    member_epoch: int = field(
        Int32, doc="The member's epoch; 0 to join, -1 to leave, -2 for a static member that will come back."
    )
    instance_id: str | None = field(
        String, nullable="0+", default=None, doc="The static member's name; null for a dynamic member, or unchanged."
    )
    rack_id: str | None = field(String, nullable="0+", default=None, doc="The member's rack; null for unchanged.")
    rebalance_timeout_ms: int = field(
        Int32, default=-1, doc="How long it may take to give up partitions, in milliseconds; -1 for unchanged."
    )
    subscribed_topic_names: list[str] | None = field(
        Array(String), nullable="0+", default=None, doc="Topics that it subscribes to; null for unchanged."
    )
    subscribed_topic_regex: str | None = field(
        String,
        versions="1+",
        nullable="1+",
        default=None,
        doc="A pattern (RE2 syntax) of topics that it subscribes to; null for unchanged.",
    )
    server_assignor: str | None = field(
        String, nullable="0+", default=None, doc="The assignor that it would like; null for none, or unchanged."
    )
    topic_partitions: list[TopicPartitions] | None = field(
        Array(TopicPartitions), nullable="0+", default=None, doc="The partitions that it owns; null for unchanged."
    )


class Assignment(Struct):
    """The partitions assigned to a member."""

    topic_partitions: list[TopicPartitions] = field(
        Array(TopicPartitions), doc="The partitions that it may use now, and no others."
    )


class ConsumerGroupHeartbeatResponse(Response, api_key=68, versions="0-1", flexible="0+"):
    """The member's epoch, and its assignment where that has changed."""

    throttle_time_ms: int = fields.throttle_time_ms()
    error_code: int = field(
        Int16,
        doc="The error code; 0 means success.",
        errors=(
            *fields.COORDINATOR_ERRORS,
            "GroupAuthorizationFailedError",
            "InvalidRequestError",
            "UnknownMemberIdError",
            "FencedMemberEpochError",
            "UnsupportedAssignorError",
            "UnreleasedInstanceIdError",
            "GroupMaxSizeReachedError",
            "TopicAuthorizationFailedError",
            "InvalidRegularExpressionError",
        ),
    )
    error_message: str | None = field(
        String, nullable="0+", default=None, doc="The error message; null without an error."
    )
    member_id: str | None = field(
        String, nullable="0+", default=None, doc="The member's id; made by the coordinator when the request had none."
    )
    member_epoch: int = field(Int32, doc="The member's epoch from now on.")
    heartbeat_interval_ms: int = field(Int32, doc="How long to wait before the next heartbeat, in milliseconds.")
    assignment: Assignment | None = field(
        Assignment, nullable="0+", default=None, doc="The partitions that the member may own; null if unchanged."
    )
