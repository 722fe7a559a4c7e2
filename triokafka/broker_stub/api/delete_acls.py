"""DeleteAcls (API key 31): remove ACLs from the metadata of the cluster.

Versions 1-3. v2: flexible. v3: ACLs for user resources.
"""

from __future__ import annotations

from triokafka.broker_stub.api.describe_acls import require_stored_acls
from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import CloseConnectionError, handles
from triokafka.protocol.api.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from triokafka.security.acl import AclOperation


def _failed(request: DeleteAclsRequest, context: RequestContext, code: int, message: str) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(error_code=code, error_message=message) for _ in request.filters]
    )


@handles(DeleteAclsRequest, versions=range(1, 4), accesses=[cluster(AclOperation.ALTER)], on_error=_failed)
async def delete_acls(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    """Let the active controller remove the ACLs that match. Results are in the order of the filters."""
    require_stored_acls(context)
    for one in request.filters:
        if not (one.resource_type_filter and one.pattern_type_filter and one.operation and one.permission_type):
            raise CloseConnectionError("the request has UNKNOWN elements")  # as Kafka
    response = await context.gateway_without_slot().send(request)
    context.items = sum(len(result.matching_acls) for result in response.filter_results)
    return response
