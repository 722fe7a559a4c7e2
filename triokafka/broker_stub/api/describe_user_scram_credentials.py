"""DescribeUserScramCredentials (API key 50): which SCRAM credentials users have (KIP-554). It reveals no secret.

Version 0.
"""

from __future__ import annotations

from collections import Counter

from triokafka import errors
from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.metadata.scram_credentials import iterations_by_user
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.broker_stub.work_budget import in_portions
from triokafka.protocol.api.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from triokafka.security.acl import AclOperation


@handles(DescribeUserScramCredentialsRequest, versions=range(0, 1), accesses=[cluster(AclOperation.DESCRIBE)])
async def describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    """Return mechanisms and iterations of the users, or of all, from this broker's image."""
    known = iterations_by_user(context.metadata.image)
    asked = Counter(user.name for user in request.users or ()) or Counter(known)
    response = DescribeUserScramCredentialsResponse()
    async for user, times in in_portions(asked.items()):
        result = DescribeUserScramCredentialsResult(user=user)
        response.results.append(result)
        if request.users and times > 1:
            result.error_code = errors.DuplicateResourceError.code
            result.error_message = (
                f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
            )
        elif user not in known:
            result.error_code = errors.ResourceNotFoundError.code
            result.error_message = f"Attempt to describe a user credential that does not exist: {user}"
        else:
            result.credential_infos = [
                CredentialInfo(mechanism=mechanism, iterations=iterations)
                for mechanism, iterations in known[user].items()
            ]
    context.items = len(response.results)
    return response
