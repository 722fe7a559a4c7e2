"""DescribeGroups (API key 15)."""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Bytes, Int16, Int32, String


class DescribeGroupsRequest(Request["DescribeGroupsResponse"], api_key=15, versions="0-6", flexible="5+"):
    """Ask."""

    groups: list[str] = field(Array(String), doc="Groups.")
    include_authorized_operations: bool = field(Boolean, versions="3+", doc="Include authorized operations.")


class DescribedGroupMember(Struct):
    """One item of ``members``."""

    member_id: str = field(String, doc="Member id.")
    group_instance_id: str | None = field(
        String,
        versions="4+",
        nullable="4+",
        ignorable=True,
        default=None,
        doc="Group instance id.",
    )
    client_id: str = field(String, doc="Client id.")
    client_host: str = field(String, doc="Client host.")
    member_metadata: bytes = field(Bytes, doc="Member metadata.")
    member_assignment: bytes = field(Bytes, doc="Member assignment.")


class DescribedGroup(Struct):
    """One item of ``groups``."""

    error_code: int = field(Int16, doc="Error code.")
    error_message: str | None = field(String, versions="6+", nullable="6+", default=None, doc="Error message.")
    group_id: str = field(String, doc="Group id.")
    group_state: str = field(String, doc="Group state.")
    protocol_type: str = field(String, doc="Protocol type.")
    protocol_data: str = field(String, doc="Protocol data.")
    members: list[DescribedGroupMember] = field(Array(DescribedGroupMember), doc="Members.")
    authorized_operations: int = field(Int32, versions="3+", default=-(2**31), doc="Authorized operations.")


class DescribeGroupsResponse(Response, api_key=15, versions="0-6", flexible="5+"):
    """The answer."""

    throttle_time_ms: int = field(Int32, versions="1+", ignorable=True, doc="Throttle time ms.")
    groups: list[DescribedGroup] = field(Array(DescribedGroup), doc="Groups.")
