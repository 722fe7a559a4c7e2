"""UnregisterBroker (API key 64): forget a broker that will not come back.

Version 0; flexible.
"""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, field
from triokafka.protocol.primitives import Int16, Int32, String


class UnregisterBrokerRequest(Request["UnregisterBrokerResponse"], api_key=64, versions="0", flexible="0+"):
    """Remove the registration of a broker."""

    broker_id: int = field(Int32, doc="The broker's number.")


class UnregisterBrokerResponse(Response, api_key=64, versions="0", flexible="0+"):
    """The outcome."""

    throttle_time_ms: int = field(
        Int32, doc="How many milliseconds the client shall stay silent, because it exceeded a quota; 0 for none."
    )
    error_code: int = field(
        Int16,
        doc="Why it failed; 0 when it did not.",
        errors=(
            "BrokerIdNotRegisteredError",
            "ClusterAuthorizationFailedError",
            "NotControllerError",
        ),
    )
    error_message: str | None = field(
        String, nullable="0+", doc="The error in words; null when there was none or the broker has nothing to add."
    )
