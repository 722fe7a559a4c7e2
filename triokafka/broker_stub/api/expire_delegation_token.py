"""ExpireDelegationToken (API key 40): change when a token expires, or remove it (KIP-48).

Versions 1-2. v2: flexible. Only the owner and the renewers of a token may do so.
"""

from __future__ import annotations

from triokafka import errors
from triokafka.broker_stub.api.token_requests import allows_token_requests
from triokafka.broker_stub.metadata.delegation_tokens import NO_TIMESTAMP
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse


def _failed(
    request: ExpireDelegationTokenRequest, context: RequestContext, code: int, message: str
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=NO_TIMESTAMP)


@handles(ExpireDelegationTokenRequest, versions=range(1, 3), on_error=_failed)
async def expire_delegation_token(
    request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    """Let the active controller change the token."""
    if not allows_token_requests(context):
        raise errors.DelegationTokenRequestNotAllowedError
    return await context.gateway_without_slot().send(request)
