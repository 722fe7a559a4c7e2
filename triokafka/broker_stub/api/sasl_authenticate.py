"""SaslAuthenticate (API key 36): refused like SaslHandshake, since the connection is already authenticated.

Versions 0-2. v1: session lifetime. v2: flexible.
"""

from __future__ import annotations

from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.errors import IllegalSaslStateError
from triokafka.protocol.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


@handles(SaslAuthenticateRequest, versions=range(0, 3))
async def sasl_authenticate(request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
    """Return ILLEGAL_SASL_STATE."""
    return SaslAuthenticateResponse(
        error_code=IllegalSaslStateError.code,
        error_message="SaslAuthenticate request received after successful authentication",
    )
