"""UnregisterBroker (API key 64): remove the registration of a broker that will not return.

Version 0; flexible.
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, field
from triokafka.protocol.primitives import Int16, Int32


class UnregisterBrokerRequest(Request["UnregisterBrokerResponse"], api_key=64, versions="0", flexible="0+"):
    """Remove the registration of a broker."""

    broker_id: int = field(Int32, doc="The broker's number.")


class UnregisterBrokerResponse(Response, api_key=64, versions="0", flexible="0+"):
    """The outcome."""

    throttle_time_ms: int = fields.throttle_time_ms()
    error_code: int = field(
        Int16,
        doc="The error code; 0 means success.",
        errors=(
            "BrokerIdNotRegisteredError",
            "ClusterAuthorizationFailedError",
            "NotControllerError",
        ),
    )
    error_message: str | None = fields.error_message(nullable="0+")
