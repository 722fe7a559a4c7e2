"""SaslHandshake (API key 17): refused, since it comes after the connection has its principal.

Versions 0-1. A connection is authenticated before its first request gets here, and on a PLAINTEXT listener there is
nothing to do. Kafka serves the request on every listener, since its error is one that clients explain well.
"""

from __future__ import annotations

from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.errors import IllegalSaslStateError
from triokafka.protocol.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@handles(SaslHandshakeRequest, versions=range(0, 2))
async def sasl_handshake(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    """Refuse it; no mechanism is offered."""
    return SaslHandshakeResponse(error_code=IllegalSaslStateError.code)
