"""Heartbeat (API key 12): a member of a classic group says that it is alive.

Versions 0–4; flexible from 4. v1: throttle time. v3: static members (KIP-345).
"""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, field
from triokafka.protocol.primitives import Int16, Int32, String


class HeartbeatRequest(Request["HeartbeatResponse"], api_key=12, versions="0-4", flexible="4+"):
    """Say that a member is alive."""

    group_id: str = field(
        String,
        doc="The group's id.",
        errors=("InvalidGroupIdError", "GroupAuthorizationFailedError"),
    )
    generation_id: int = field(
        Int32,
        doc="The generation that the member believes to be current.",
        errors=("IllegalGenerationError",),
    )
    member_id: str = field(
        String,
        doc="The member, by the id that the coordinator gave it.",
        errors=("UnknownMemberIdError",),
    )
    group_instance_id: str | None = field(
        String,
        versions="3+",
        nullable="3+",
        default=None,
        doc="The name of a static member, which survives its restarts; null for a dynamic one.",
        errors=("FencedInstanceIdError",),
    )


class HeartbeatResponse(Response, api_key=12, versions="0-4", flexible="4+"):
    """Whether the member is still in the group, and whether it must rejoin."""

    throttle_time_ms: int = field(
        Int32,
        versions="1+",
        ignorable=True,
        doc="How many milliseconds the client shall stay silent, because it exceeded a quota; 0 for none.",
    )
    error_code: int = field(
        Int16,
        doc="0 while all is well; RebalanceInProgressError asks the member to join again.",
        errors=(
            "CoordinatorLoadInProgressError",
            "CoordinatorNotAvailableError",
            "NotCoordinatorError",
            "InvalidGroupIdError",
            "GroupAuthorizationFailedError",
            "UnknownMemberIdError",
            "IllegalGenerationError",
            "RebalanceInProgressError",
            "FencedInstanceIdError",
        ),
    )
