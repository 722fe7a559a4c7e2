"""CreateAcls (API key 30): add ACLs. This broker stores no ACLs and returns SECURITY_DISABLED.

Versions 1-3. v2: flexible. v3: ACLs for user resources.
"""

from __future__ import annotations

from triokafka import errors
from triokafka.broker_stub.api.describe_acls import NO_RULES
from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from triokafka.security.acl import AclOperation


def _failed(request: CreateAclsRequest, context: RequestContext, code: int, message: str) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=code, error_message=message) for _ in request.creations]
    )


@handles(CreateAclsRequest, versions=range(1, 4), accesses=[cluster(AclOperation.ALTER)], on_error=_failed)
async def create_acls(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """Return SECURITY_DISABLED for each ACL."""
    raise errors.SecurityDisabledError(NO_RULES)
