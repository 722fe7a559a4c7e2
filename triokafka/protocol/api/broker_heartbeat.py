"""BrokerHeartbeat (API key 63): a broker says that it is alive, and asks to be fenced, unfenced or shut down (KIP-631).

Versions 0–2; flexible. v1: offline log directories (KIP-858). v2: cordoned log directories (KIP-1066).
"""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, field
from triokafka.protocol.primitives import Array, Boolean, Int16, Int32, Int64, Uuid


class BrokerHeartbeatRequest(Request["BrokerHeartbeatResponse"], api_key=63, versions="0-2", flexible="0+"):
    """Renew a broker's session."""

    broker_id: int = field(Int32, doc="The broker's number.")
    broker_epoch: int = fields.broker_epoch()
    current_metadata_offset: int = field(
        Int64, doc="The offset of the last metadata record that the broker has applied."
    )
    want_fence: bool = field(Boolean, doc="Whether the broker asks to be fenced.")
    want_shut_down: bool = field(
        Boolean, doc="Whether the broker asks to shut down, which begins the move of its leaderships."
    )
    offline_log_dirs: list[UUID] = field(
        Array(Uuid), versions="1+", tag=0, doc="The ids of log directories that failed."
    )
    cordoned_log_dirs: list[UUID] | None = field(
        Array(Uuid),
        versions="2+",
        nullable="2+",
        tag=1,
        default=None,
        doc="The ids of log directories that get no new partitions; null when the broker does not say.",
    )


class BrokerHeartbeatResponse(Response, api_key=63, versions="0-2", flexible="0+"):
    """The state of the broker in the controller's eyes."""

    throttle_time_ms: int = fields.throttle_time_ms()
    error_code: int = field(
        Int16,
        doc="The error code; 0 means success.",
        errors=(
            "ClusterAuthorizationFailedError",
            "NotControllerError",
            "StaleBrokerEpochError",
            "BrokerIdNotRegisteredError",
        ),
    )
    is_caught_up: bool = field(Boolean, default=False, doc="Whether the broker has applied the metadata that exists.")
    is_fenced: bool = field(Boolean, default=True, doc="Whether the broker is fenced.")
    should_shut_down: bool = field(
        Boolean, doc="Whether the broker may shut down, because it no longer leads any partition."
    )
