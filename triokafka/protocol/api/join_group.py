"""JoinGroup (API key 11): enter a classic group, or enter its next generation.

Versions 0–9; flexible from 6. v1: rebalance timeout. v2: throttle time. v4: a new member is first given an id and must
join again with it (KIP-394). v5: static members (KIP-345). v7: the answer names the protocol type (KIP-559). v8: the
reason for joining (KIP-800). v9: the leader may be asked to skip the assignment (KIP-814).
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Bytes, Int16, Int32, String


class JoinGroupRequestProtocol(Struct):
    """One supported protocol: for consumers an assignment strategy."""

    name: str = field(String, doc="The protocol's name: for consumers the assignment strategy.")
    metadata: bytes = field(
        Bytes,
        doc="The member's own data for that protocol: for consumers a ConsumerProtocolSubscription.",
    )


class JoinGroupRequest(Request["JoinGroupResponse"], api_key=11, versions="0-9", flexible="6+"):
    """Enter a group with the protocols that one supports."""

    group_id: str = fields.group_id()
    session_timeout_ms: int = field(
        Int32,
        doc="How many milliseconds without a heartbeat until the member is declared dead.",
        errors=("InvalidSessionTimeoutError",),
    )
    rebalance_timeout_ms: int = field(
        Int32,
        versions="1+",
        ignorable=True,
        default=-1,
        doc="How many milliseconds members have to join again once a rebalance started; -1 for the session timeout.",
    )
    member_id: str = field(
        String,
        doc="The member's id; empty for a new member.",
        errors=("UnknownMemberIdError", "MemberIdRequiredError"),
    )
    group_instance_id: str | None = fields.group_instance_id(versions="5+", nullable="5+")
    protocol_type: str = field(
        String,
        doc="The kind of group: ``consumer`` for consumers.",
        errors=("InconsistentGroupProtocolError",),
    )
    protocols: list[JoinGroupRequestProtocol] = field(
        Array(JoinGroupRequestProtocol),
        doc="The protocols that the member supports, in order of preference.",
        errors=("InconsistentGroupProtocolError",),
    )
    reason: str | None = field(
        String,
        versions="8+",
        nullable="8+",
        ignorable=True,
        default=None,
        doc="The reason for joining, for the broker's log.",
    )


class JoinGroupResponseMember(Struct):
    """A member, as the leader receives it."""

    member_id: str = field(String, doc="The member's id.")
    group_instance_id: str | None = fields.static_member_name(versions="5+", nullable="5+", ignorable=True)
    metadata: bytes = field(Bytes, doc="The member's data for the chosen protocol.")


class JoinGroupResponse(Response, api_key=11, versions="0-9", flexible="6+"):
    """The generation that was formed; the leader also learns the members."""

    throttle_time_ms: int = fields.throttle_time_ms(versions="2+", ignorable=True)
    error_code: int = field(
        Int16,
        doc="The error code; 0 if the member has joined.",
        errors=(
            *fields.GROUP_ERRORS,
            "UnknownMemberIdError",
            "MemberIdRequiredError",
            "InconsistentGroupProtocolError",
            "InvalidSessionTimeoutError",
            "RebalanceInProgressError",
            "FencedInstanceIdError",
            "GroupMaxSizeReachedError",
            "UnsupportedAssignorError",
        ),
    )
    generation_id: int = field(Int32, default=-1, doc="The generation that was formed; -1 on an error.")
    protocol_type: str | None = fields.protocol_type(versions="7+", nullable="7+", ignorable=True)
    protocol_name: str | None = field(String, nullable="7+", doc="The protocol that all members support.")
    leader: str = field(String, doc="The leader's member id; the leader makes the assignment.")
    skip_assignment: bool = field(Boolean, versions="9+", doc="Whether the leader must keep the current assignment.")
    member_id: str = field(String, doc="The id that the coordinator gave to the member.")
    members: list[JoinGroupResponseMember] = field(
        Array(JoinGroupResponseMember),
        doc="All members for the leader, an empty list for others.",
    )
