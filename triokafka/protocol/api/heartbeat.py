"""Heartbeat (API key 12): keep the session of a classic group's member alive.

Versions 0–4; flexible from 4. v1: throttle time. v3: static members (KIP-345).
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, field
from triokafka.protocol.primitives import Int16


class HeartbeatRequest(Request["HeartbeatResponse"], api_key=12, versions="0-4", flexible="4+"):
    """Say that a member is alive."""

    group_id: str = fields.group_id()
    generation_id: int = fields.generation_id()
    member_id: str = fields.member_id()
    group_instance_id: str | None = fields.group_instance_id(versions="3+", nullable="3+")


class HeartbeatResponse(Response, api_key=12, versions="0-4", flexible="4+"):
    """Whether the member is still in the group, and whether it must rejoin."""

    throttle_time_ms: int = fields.throttle_time_ms(versions="1+", ignorable=True)
    error_code: int = field(
        Int16,
        doc="0 while all is well; RebalanceInProgressError asks the member to join again.",
        errors=(
            *fields.GROUP_ERRORS,
            "UnknownMemberIdError",
            "IllegalGenerationError",
            "RebalanceInProgressError",
            "FencedInstanceIdError",
        ),
    )
