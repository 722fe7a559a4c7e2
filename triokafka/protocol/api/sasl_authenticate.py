"""SaslAuthenticate (API key 36): one token of a SASL exchange, and the other side's answer to it (KIP-152).

Versions 0–2; flexible from 2. v1: how long the session lasts (KIP-368).
"""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, field
from triokafka.protocol.primitives import Bytes, Int16, Int64, String


class SaslAuthenticateRequest(Request["SaslAuthenticateResponse"], api_key=36, versions="0-2", flexible="2+"):
    """Send a token."""

    auth_bytes: bytes = field(
        Bytes,
        doc="The client's token, as the mechanism has it.",
        errors=("SaslAuthenticationFailedError",),
    )


class SaslAuthenticateResponse(Response, api_key=36, versions="0-2", flexible="2+"):
    """The broker's token, or the error."""

    error_code: int = field(
        Int16,
        doc="0 while all is well.",
        errors=("SaslAuthenticationFailedError", "IllegalSaslStateError"),
    )
    error_message: str | None = field(
        String,
        nullable="0+",
        doc="The error message; null without an error.",
    )
    auth_bytes: bytes = field(
        Bytes,
        doc="The broker's token, as the mechanism has it.",
    )
    session_lifetime_ms: int = field(
        Int64,
        versions="1+",
        ignorable=True,
        doc="Milliseconds after which the client must authenticate again on this connection; 0 for never.",
    )
