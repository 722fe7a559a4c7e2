"""SaslAuthenticate (API key 36): refused, as `sasl_handshake` is.

Versions 0-2. v1: session lifetime. v2: flexible.
"""

from __future__ import annotations

from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.errors import IllegalSaslStateError
from triokafka.protocol.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


@handles(SaslAuthenticateRequest, versions=range(0, 3))
async def sasl_authenticate(request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
    """Refuse it."""
    return SaslAuthenticateResponse(
        error_code=IllegalSaslStateError.code,
        error_message="SaslAuthenticate request received after successful authentication",
    )
