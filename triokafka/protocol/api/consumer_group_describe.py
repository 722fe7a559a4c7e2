"""ConsumerGroupDescribe (API key 69): groups under the new consumer protocol, with their members (KIP-848).

Versions 0–1; all are flexible. Version 1 adds the kind of each member (KIP-1099).
"""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Int8, Int16, Int32, String, Uuid


class ConsumerGroupDescribeRequest(Request["ConsumerGroupDescribeResponse"], api_key=69, versions="0-1", flexible="0+"):
    """Ask about groups."""

    group_ids: list[str] = field(Array(String), doc="The groups' ids.")
    include_authorized_operations: bool = field(
        Boolean, doc="Whether to return the operations that the caller may perform on each group."
    )


class TopicPartitions(Struct):
    """Some partitions of a topic."""

    topic_id: UUID = field(Uuid, doc="The topic's id.")
    topic_name: str = field(String, doc="The topic's name.")
    partitions: list[int] = field(Array(Int32), doc="Numbers of the partitions.")


class Assignment(Struct):
    """Partitions of one member."""

    topic_partitions: list[TopicPartitions] = field(Array(TopicPartitions), doc="The partitions by topic.")


class Member(Struct):
    """A member with its current and its target assignment."""

    member_id: str = field(String, doc="The member's id.")
    instance_id: str | None = fields.static_member_name(nullable="0+")
    rack_id: str | None = field(String, nullable="0+", default=None, doc="The member's rack; null when unknown.")
    member_epoch: int = field(Int32, doc="The member's epoch.")
    client_id: str = field(String, doc="Its client id.")
    client_host: str = field(String, doc="The host that it talks from.")
    subscribed_topic_names: list[str] = field(Array(String), doc="Topics that it subscribes to by name.")
    subscribed_topic_regex: str | None = field(
        String, nullable="0+", default=None, doc="The pattern of topics that it subscribes to; null for none."
    )
    assignment: Assignment = field(Assignment, doc="The partitions that the member owns.")
    target_assignment: Assignment = field(Assignment, doc="The target assignment of the member.")
    member_type: int = field(
        Int8,
        versions="1+",
        default=-1,
        ignorable=True,
        doc="0 for the classic protocol, 1 for the new one, -1 unknown.",
    )


class DescribedGroup(Struct):
    """A group."""

    error_code: int = field(
        Int16,
        doc="The error code of the description; 0 for success.",
        errors=(*fields.GROUP_ERRORS, "InvalidRequestError", "GroupIdNotFoundError", "TopicAuthorizationFailedError"),
    )
    error_message: str | None = field(
        String, nullable="0+", default=None, doc="The error message; null without an error."
    )
    group_id: str = field(String, doc="The group's id.")
    group_state: str = field(String, doc="The group's state, or the empty string.")
    group_epoch: int = field(Int32, doc="The group epoch, which grows with the members' subscriptions.")
    assignment_epoch: int = field(Int32, doc="The epoch of the target assignment.")
    assignor_name: str = field(String, doc="The assignor that was chosen.")
    members: list[Member] = field(Array(Member), doc="The members.")
    authorized_operations: int = field(
        Int32,
        default=-2147483648,
        doc="The operations that the caller may perform on the group, as a bit field; the default if not requested.",
    )


class ConsumerGroupDescribeResponse(Response, api_key=69, versions="0-1", flexible="0+"):
    """The groups, in the order of the request."""

    throttle_time_ms: int = fields.throttle_time_ms()
    groups: list[DescribedGroup] = field(Array(DescribedGroup), doc="The groups.")
