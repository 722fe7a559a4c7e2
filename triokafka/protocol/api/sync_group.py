"""SyncGroup (API key 14): the leader hands in the assignment, every member receives its part.

Versions 0–5; flexible from 4. v1: throttle time. v3: static members (KIP-345). v5: protocol type and name, which are
checked against the group's (KIP-559).
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Bytes, Int16, String


class SyncGroupRequestAssignment(Struct):
    """The part of one member."""

    member_id: str = field(String, doc="The member that the part is for.")
    assignment: bytes = field(Bytes, doc="The part: for consumers a ConsumerProtocolAssignment.")


class SyncGroupRequest(Request["SyncGroupResponse"], api_key=14, versions="0-5", flexible="4+"):
    """Wait for the assignment; the leader brings it."""

    group_id: str = fields.group_id()
    generation_id: int = fields.generation_id()
    member_id: str = fields.member_id()
    group_instance_id: str | None = fields.group_instance_id(versions="3+", nullable="3+")
    protocol_type: str | None = field(
        String,
        versions="5+",
        nullable="5+",
        ignorable=True,
        default=None,
        doc="The kind of group that the member believes in.",
        errors=("InconsistentGroupProtocolError",),
    )
    protocol_name: str | None = field(
        String,
        versions="5+",
        nullable="5+",
        ignorable=True,
        default=None,
        doc="The protocol that the member believes in.",
        errors=("InconsistentGroupProtocolError",),
    )
    assignments: list[SyncGroupRequestAssignment] = field(
        Array(SyncGroupRequestAssignment),
        doc="From the leader the parts of all members, from others nothing.",
    )


class SyncGroupResponse(Response, api_key=14, versions="0-5", flexible="4+"):
    """The member's own part."""

    throttle_time_ms: int = fields.throttle_time_ms(versions="1+", ignorable=True)
    error_code: int = field(
        Int16,
        doc="The error code; 0 if the member received its assignment.",
        errors=(
            *fields.GROUP_ERRORS,
            "UnknownMemberIdError",
            "IllegalGenerationError",
            "RebalanceInProgressError",
            "FencedInstanceIdError",
            "InconsistentGroupProtocolError",
        ),
    )
    protocol_type: str | None = fields.protocol_type(versions="5+", nullable="5+", ignorable=True)
    protocol_name: str | None = field(
        String,
        versions="5+",
        nullable="5+",
        ignorable=True,
        default=None,
        doc="The protocol of the generation.",
    )
    assignment: bytes = field(Bytes, doc="The member's part: for consumers a ConsumerProtocolAssignment.")
