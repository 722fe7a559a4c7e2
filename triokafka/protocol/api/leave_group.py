"""LeaveGroup (API key 13)."""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int32, String


class MemberIdentity(Struct):
    """One item of ``members``."""

    member_id: str = field(String, versions="3+", doc="Member id.")
    group_instance_id: str | None = field(String, versions="3+", nullable="3+", default=None, doc="Group instance id.")
    reason: str | None = field(String, versions="5+", nullable="5+", ignorable=True, default=None, doc="Reason.")


class LeaveGroupRequest(Request["LeaveGroupResponse"], api_key=13, versions="0-5", flexible="4+"):
    """Ask."""

    group_id: str = field(String, doc="Group id.")
    member_id: str = field(String, versions="0-2", doc="Member id.")
    members: list[MemberIdentity] = field(Array(MemberIdentity), versions="3+", doc="Members.")


class MemberResponse(Struct):
    """One item of ``members``."""

    member_id: str = field(String, versions="3+", doc="Member id.")
    group_instance_id: str | None = field(String, versions="3+", nullable="3+", doc="Group instance id.")
    error_code: int = field(Int16, versions="3+", doc="Error code.")


class LeaveGroupResponse(Response, api_key=13, versions="0-5", flexible="4+"):
    """The answer."""

    throttle_time_ms: int = field(Int32, versions="1+", ignorable=True, doc="Throttle time ms.")
    error_code: int = field(Int16, doc="Error code.")
    members: list[MemberResponse] = field(Array(MemberResponse), versions="3+", doc="Members.")
