"""RenewDelegationToken (API key 39): move the expiry of a token to a later time (KIP-48).

Versions 1-2. v2: flexible. Only the owner and the renewers of a token may do so.
"""

from __future__ import annotations

from triokafka import errors
from triokafka.broker_stub.api.token_requests import allows_token_requests
from triokafka.broker_stub.metadata.delegation_tokens import NO_TIMESTAMP
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse


def _failed(
    request: RenewDelegationTokenRequest, context: RequestContext, code: int, message: str
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=NO_TIMESTAMP)


@handles(RenewDelegationTokenRequest, versions=range(1, 3), on_error=_failed)
async def renew_delegation_token(
    request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    """Let the active controller change the token."""
    if not allows_token_requests(context):
        raise errors.DelegationTokenRequestNotAllowedError
    return await context.gateway_without_slot().send(request)
