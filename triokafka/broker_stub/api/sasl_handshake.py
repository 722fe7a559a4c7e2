"""SaslHandshake (API key 17): refused, since the connection is already authenticated.

Versions 0-1. The broker authenticates a connection before its first request reaches a handler; a PLAINTEXT listener
needs no authentication. Like Kafka, the broker accepts the request on every listener, since clients explain the error
ILLEGAL_SASL_STATE well.
"""

from __future__ import annotations

from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.errors import IllegalSaslStateError
from triokafka.protocol.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@handles(SaslHandshakeRequest, versions=range(0, 2))
async def sasl_handshake(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    """Return ILLEGAL_SASL_STATE without mechanisms."""
    return SaslHandshakeResponse(error_code=IllegalSaslStateError.code)
