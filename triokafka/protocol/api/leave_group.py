"""LeaveGroup (API key 13): members leave a classic group without waiting for a timeout.

Versions 0–5; flexible from 4. v1: throttle time. v3: several members, also static ones, in one request (KIP-345). v5:
the reason for leaving (KIP-800).
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, String


class MemberIdentity(Struct):
    """A member that leaves."""

    member_id: str = field(
        String,
        versions="3+",
        doc="The member's id; may be empty for a static one.",
        errors=("UnknownMemberIdError",),
    )
    group_instance_id: str | None = fields.group_instance_id(versions="3+", nullable="3+")
    reason: str | None = field(
        String,
        versions="5+",
        nullable="5+",
        ignorable=True,
        default=None,
        doc="The reason for leaving, for the broker's log.",
    )


class LeaveGroupRequest(Request["LeaveGroupResponse"], api_key=13, versions="0-5", flexible="4+"):
    """Leave; versions below 3 name one member."""

    group_id: str = fields.group_id()
    member_id: str = fields.member_id(versions="0-2")
    members: list[MemberIdentity] = field(Array(MemberIdentity), versions="3+", doc="The members that leave.")


class MemberResponse(Struct):
    """The outcome for one member."""

    member_id: str = field(String, versions="3+", doc="The id of the member.")
    group_instance_id: str | None = field(
        String,
        versions="3+",
        nullable="3+",
        doc="The static member's name; null for a dynamic one.",
    )
    error_code: int = field(
        Int16,
        versions="3+",
        doc="The error code of the member; 0 if it left.",
        errors=("UnknownMemberIdError", "FencedInstanceIdError"),
    )


class LeaveGroupResponse(Response, api_key=13, versions="0-5", flexible="4+"):
    """The outcome, from version 3 on per member."""

    throttle_time_ms: int = fields.throttle_time_ms(versions="1+", ignorable=True)
    error_code: int = field(
        Int16,
        doc="Error of the whole request; below version 3 the outcome for the member.",
        errors=(*fields.GROUP_ERRORS, "UnknownMemberIdError"),
    )
    members: list[MemberResponse] = field(Array(MemberResponse), versions="3+", doc="The outcome by member.")
