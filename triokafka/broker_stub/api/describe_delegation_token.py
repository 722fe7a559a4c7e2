"""DescribeDelegationToken (API key 41): the tokens that the client may see, with their secrets (KIP-48).

Versions 1-3. v2: flexible. v3: who requested a token (KIP-373).
"""

from __future__ import annotations

from triokafka import errors
from triokafka.broker_stub.api.token_requests import allows_token_requests
from triokafka.broker_stub.authorizer import Access
from triokafka.broker_stub.metadata.delegation_tokens import tokens_of
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.broker_stub.work_budget import WorkBudget
from triokafka.protocol.api.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from triokafka.protocol.stored.cluster_metadata import DelegationTokenRecord
from triokafka.security.acl import AclOperation, ResourceType
from triokafka.security.delegation_tokens import token_secret


@handles(
    DescribeDelegationTokenRequest,
    versions=range(1, 4),
    accesses=[
        Access(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, lambda request: ()),
        Access(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, lambda request: ()),
    ],
)
async def describe_delegation_token(
    request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    """Return the client's own tokens, and those of others that it may describe, from this broker's image."""
    if not allows_token_requests(context):
        return DescribeDelegationTokenResponse(error_code=errors.DelegationTokenRequestNotAllowedError.code)
    secret_key = context.config.delegation_token_secret_key
    if not secret_key:
        return DescribeDelegationTokenResponse(error_code=errors.DelegationTokenAuthDisabledError.code)
    owners = None
    if request.owners is not None:
        owners = {f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners}
    response = DescribeDelegationTokenResponse()
    budget = WorkBudget()
    for token in () if owners == set() else tokens_of(context.metadata.image):
        if (owners is None or _concerns(token, owners)) and _may_see(token, context):
            response.tokens.append(_described(token, secret_key, context.version))
        await budget.spend(1 + len(token.renewers))
    context.items = len(response.tokens)
    return response


def _concerns(token: DelegationTokenRecord, principals: set[str]) -> bool:
    return token.owner in principals or not principals.isdisjoint(token.renewers)


def _may_see(token: DelegationTokenRecord, context: RequestContext) -> bool:
    return (
        _concerns(token, {context.principal})
        or not context.denied(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
        or not context.denied(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
    )


def _described(token: DelegationTokenRecord, secret_key: str, version: int) -> DescribedDelegationToken:
    described = DescribedDelegationToken(
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=token_secret(token.token_id, secret_key),
    )
    described.principal_type, _, described.principal_name = token.owner.partition(":")
    if version >= 3:
        kind, _, name = token.requester.partition(":")
        described.token_requester_principal_type, described.token_requester_principal_name = kind, name
    for renewer in token.renewers:
        kind, _, name = renewer.partition(":")
        described.renewers.append(DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name))
    return described
