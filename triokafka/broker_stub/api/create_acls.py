"""CreateAcls (API key 30): add ACLs to the metadata of the cluster.

Versions 1-3. v2: flexible. v3: ACLs for user resources.
"""

from __future__ import annotations

from triokafka.broker_stub.api.describe_acls import require_stored_acls
from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import CloseConnectionError, handles
from triokafka.protocol.api.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from triokafka.security.acl import AclOperation


def _failed(request: CreateAclsRequest, context: RequestContext, code: int, message: str) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=code, error_message=message) for _ in request.creations]
    )


@handles(CreateAclsRequest, versions=range(1, 4), accesses=[cluster(AclOperation.ALTER)], on_error=_failed)
async def create_acls(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """Let the active controller add the ACLs. Results are in the order of the request."""
    require_stored_acls(context)
    for one in request.creations:
        if not (one.resource_type and one.resource_pattern_type and one.operation and one.permission_type):
            raise CloseConnectionError("the request has UNKNOWN elements")  # as Kafka
    return await context.gateway_without_slot().send(request)
