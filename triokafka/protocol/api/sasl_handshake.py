"""SaslHandshake (API key 17): a client names the SASL mechanism that it is going to use.

Versions 0–1; never flexible. v1: the tokens follow in SaslAuthenticate requests, not as bare frames (KIP-152).
"""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, field
from triokafka.protocol.primitives import Array, Int16, String


class SaslHandshakeRequest(Request["SaslHandshakeResponse"], api_key=17, versions="0-1"):
    """Begin to authenticate."""

    mechanism: str = field(
        String,
        doc="The mechanism that the client has chosen.",
        errors=("UnsupportedSaslMechanismError",),
    )


class SaslHandshakeResponse(Response, api_key=17, versions="0-1"):
    """Whether the mechanism is one of the listener's."""

    error_code: int = field(
        Int16,
        doc="0 if the client may continue.",
        errors=("UnsupportedSaslMechanismError", "IllegalSaslStateError"),
    )
    mechanisms: list[str] = field(
        Array(String),
        doc="The mechanisms that the listener offers.",
    )
