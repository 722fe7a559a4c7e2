"""AlterUserScramCredentials (API key 51): set and remove SCRAM credentials of users (KIP-554).

Version 0.
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from triokafka.security.acl import AclOperation


def _failed(
    request: AlterUserScramCredentialsRequest, context: RequestContext, code: int, message: str
) -> AlterUserScramCredentialsResponse:
    users = dict.fromkeys([*(one.name for one in request.deletions), *(one.name for one in request.upsertions)])
    return AlterUserScramCredentialsResponse(
        results=[AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message) for user in users]
    )


@handles(
    AlterUserScramCredentialsRequest, versions=range(0, 1), accesses=[cluster(AclOperation.ALTER)], on_error=_failed
)
async def alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    """Let the active controller change the credentials."""
    return await context.gateway_without_slot().send(request)
