"""DescribeGroups (API key 15): state and members of classic groups.

Versions 0–6; flexible from 5. v1: throttle time. v3: authorized operations. v4: static members. v6:
GroupIdNotFoundError for groups that do not exist, which were reported as dead before (KIP-1043).
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Bytes, Int16, Int32, String


class DescribeGroupsRequest(Request["DescribeGroupsResponse"], api_key=15, versions="0-6", flexible="5+"):
    """Ask for groups by id."""

    groups: list[str] = fields.groups()
    include_authorized_operations: bool = field(
        Boolean,
        versions="3+",
        doc="Whether to return the operations that the client may perform on each group.",
    )


class DescribedGroupMember(Struct):
    """A member of a group."""

    member_id: str = field(String, doc="The member's id.")
    group_instance_id: str | None = fields.static_member_name(versions="4+", nullable="4+", ignorable=True)
    client_id: str = field(String, doc="The client id that the member joined with.")
    client_host: str = field(String, doc="The host that it joined from.")
    member_metadata: bytes = field(Bytes, doc="The member's data for the protocol; empty while none is chosen.")
    member_assignment: bytes = field(Bytes, doc="Its part of the assignment; empty while there is none.")


class DescribedGroup(Struct):
    """A group."""

    error_code: int = field(
        Int16,
        doc="The error code of the group; 0 for success.",
        errors=(*fields.GROUP_ERRORS, "GroupIdNotFoundError"),
    )
    error_message: str | None = fields.error_message(versions="6+", nullable="6+", default=None)
    group_id: str = field(String, doc="The group's id.")
    group_state: str = field(String, doc="The state: PreparingRebalance, CompletingRebalance, Stable, Empty or Dead.")
    protocol_type: str = field(String, doc="The kind of group.")
    protocol_data: str = field(String, doc="The protocol that was chosen; empty while there is none.")
    members: list[DescribedGroupMember] = field(Array(DescribedGroupMember), doc="The members.")
    authorized_operations: int = field(
        Int32,
        versions="3+",
        default=-(2**31),
        doc="The operations that the client may perform on the group, as a bit field; -2147483648 if not requested.",
    )


class DescribeGroupsResponse(Response, api_key=15, versions="0-6", flexible="5+"):
    """One description per group of the request."""

    throttle_time_ms: int = fields.throttle_time_ms(versions="1+", ignorable=True)
    groups: list[DescribedGroup] = field(Array(DescribedGroup), doc="The groups described.")
