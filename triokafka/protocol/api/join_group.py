"""JoinGroup (API key 11)."""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Bytes, Int16, Int32, String


class JoinGroupRequestProtocol(Struct):
    """One item of ``protocols``."""

    name: str = field(String, doc="Name.")
    metadata: bytes = field(Bytes, doc="Metadata.")


class JoinGroupRequest(Request["JoinGroupResponse"], api_key=11, versions="0-9", flexible="6+"):
    """Ask."""

    group_id: str = field(String, doc="Group id.")
    session_timeout_ms: int = field(Int32, doc="Session timeout ms.")
    rebalance_timeout_ms: int = field(Int32, versions="1+", ignorable=True, default=-1, doc="Rebalance timeout ms.")
    member_id: str = field(String, doc="Member id.")
    group_instance_id: str | None = field(String, versions="5+", nullable="5+", default=None, doc="Group instance id.")
    protocol_type: str = field(String, doc="Protocol type.")
    protocols: list[JoinGroupRequestProtocol] = field(Array(JoinGroupRequestProtocol), doc="Protocols.")
    reason: str | None = field(String, versions="8+", nullable="8+", ignorable=True, default=None, doc="Reason.")


class JoinGroupResponseMember(Struct):
    """One item of ``members``."""

    member_id: str = field(String, doc="Member id.")
    group_instance_id: str | None = field(
        String,
        versions="5+",
        nullable="5+",
        ignorable=True,
        default=None,
        doc="Group instance id.",
    )
    metadata: bytes = field(Bytes, doc="Metadata.")


class JoinGroupResponse(Response, api_key=11, versions="0-9", flexible="6+"):
    """The answer."""

    throttle_time_ms: int = field(Int32, versions="2+", ignorable=True, doc="Throttle time ms.")
    error_code: int = field(Int16, doc="Error code.")
    generation_id: int = field(Int32, default=-1, doc="Generation id.")
    protocol_type: str | None = field(
        String,
        versions="7+",
        nullable="7+",
        ignorable=True,
        default=None,
        doc="Protocol type.",
    )
    protocol_name: str | None = field(String, nullable="7+", doc="Protocol name.")
    leader: str = field(String, doc="Leader.")
    skip_assignment: bool = field(Boolean, versions="9+", doc="Skip assignment.")
    member_id: str = field(String, doc="Member id.")
    members: list[JoinGroupResponseMember] = field(Array(JoinGroupResponseMember), doc="Members.")
