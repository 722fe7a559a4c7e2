"""SyncGroup (API key 14)."""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Bytes, Int16, Int32, String


class SyncGroupRequestAssignment(Struct):
    """One item of ``assignments``."""

    member_id: str = field(String, doc="Member id.")
    assignment: bytes = field(Bytes, doc="Assignment.")


class SyncGroupRequest(Request["SyncGroupResponse"], api_key=14, versions="0-5", flexible="4+"):
    """Ask."""

    group_id: str = field(String, doc="Group id.")
    generation_id: int = field(Int32, doc="Generation id.")
    member_id: str = field(String, doc="Member id.")
    group_instance_id: str | None = field(String, versions="3+", nullable="3+", default=None, doc="Group instance id.")
    protocol_type: str | None = field(
        String,
        versions="5+",
        nullable="5+",
        ignorable=True,
        default=None,
        doc="Protocol type.",
    )
    protocol_name: str | None = field(
        String,
        versions="5+",
        nullable="5+",
        ignorable=True,
        default=None,
        doc="Protocol name.",
    )
    assignments: list[SyncGroupRequestAssignment] = field(Array(SyncGroupRequestAssignment), doc="Assignments.")


class SyncGroupResponse(Response, api_key=14, versions="0-5", flexible="4+"):
    """The answer."""

    throttle_time_ms: int = field(Int32, versions="1+", ignorable=True, doc="Throttle time ms.")
    error_code: int = field(Int16, doc="Error code.")
    protocol_type: str | None = field(
        String,
        versions="5+",
        nullable="5+",
        ignorable=True,
        default=None,
        doc="Protocol type.",
    )
    protocol_name: str | None = field(
        String,
        versions="5+",
        nullable="5+",
        ignorable=True,
        default=None,
        doc="Protocol name.",
    )
    assignment: bytes = field(Bytes, doc="Assignment.")
