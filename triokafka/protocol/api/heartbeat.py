"""Heartbeat (API key 12)."""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, field
from triokafka.protocol.primitives import Int16, Int32, String


class HeartbeatRequest(Request["HeartbeatResponse"], api_key=12, versions="0-4", flexible="4+"):
    """Ask."""

    group_id: str = field(String, doc="Group id.")
    generation_id: int = field(Int32, doc="Generation id.")
    member_id: str = field(String, doc="Member id.")
    group_instance_id: str | None = field(String, versions="3+", nullable="3+", default=None, doc="Group instance id.")


class HeartbeatResponse(Response, api_key=12, versions="0-4", flexible="4+"):
    """The answer."""

    throttle_time_ms: int = field(Int32, versions="1+", ignorable=True, doc="Throttle time ms.")
    error_code: int = field(Int16, doc="Error code.")
