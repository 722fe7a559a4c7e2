"""CreateDelegationToken (API key 38): a token with which another client can act as its owner (KIP-48).

Versions 1-3. v2: flexible. v3: tokens for other owners (KIP-373), which need CREATE_TOKENS on the owner.
"""

from __future__ import annotations

from triokafka import errors
from triokafka.broker_stub.api.token_requests import allows_token_requests
from triokafka.broker_stub.authorizer import Access
from triokafka.broker_stub.metadata.delegation_tokens import USER_TYPE, created_response, owner_of
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from triokafka.security.acl import AclOperation, ResourceType


def _failed(
    request: CreateDelegationTokenRequest, context: RequestContext, code: int, message: str
) -> CreateDelegationTokenResponse:
    return created_response(request, context.principal, context.version, code)


def _other_owner(request: CreateDelegationTokenRequest) -> list[str]:
    return [owner_of(request, "")] if request.owner_principal_name else []


@handles(
    CreateDelegationTokenRequest,
    versions=range(1, 4),
    accesses=[Access(AclOperation.CREATE_TOKENS, ResourceType.USER, _other_owner)],
    on_error=_failed,
)
async def create_delegation_token(
    request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    """Let the active controller create the token, if the client may create tokens of the owner."""
    requester = context.principal
    owner = owner_of(request, requester)
    if not allows_token_requests(context):
        raise errors.DelegationTokenRequestNotAllowedError
    if owner != requester and context.denied(AclOperation.CREATE_TOKENS, ResourceType.USER, owner):
        raise errors.DelegationTokenAuthorizationFailedError
    if any(renewer.principal_type != USER_TYPE for renewer in request.renewers):
        raise errors.InvalidPrincipalTypeError
    return await context.gateway_without_slot().send(request)
