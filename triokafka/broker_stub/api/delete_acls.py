"""DeleteAcls (API key 31): remove ACLs. This broker stores no ACLs and returns SECURITY_DISABLED.

Versions 1-3. v2: flexible. v3: ACLs for user resources.
"""

from __future__ import annotations

from triokafka import errors
from triokafka.broker_stub.api.describe_acls import NO_RULES
from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from triokafka.security.acl import AclOperation


def _failed(request: DeleteAclsRequest, context: RequestContext, code: int, message: str) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(error_code=code, error_message=message) for _ in request.filters]
    )


@handles(DeleteAclsRequest, versions=range(1, 4), accesses=[cluster(AclOperation.ALTER)], on_error=_failed)
async def delete_acls(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    """Return SECURITY_DISABLED for each filter."""
    raise errors.SecurityDisabledError(NO_RULES)
