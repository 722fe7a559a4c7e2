"""DeleteGroups (API key 42): remove empty groups with their committed offsets.

Versions 0-2. v2: flexible.
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import Access, denial
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.broker_stub.work_budget import in_portions
from triokafka.protocol.api.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from triokafka.security.acl import AclOperation, ResourceType


def _failed(request: DeleteGroupsRequest, context: RequestContext, code: int, message: str) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=name, error_code=code) for name in request.groups_names]
    )


@handles(
    DeleteGroupsRequest,
    versions=range(0, 3),
    accesses=[Access(AclOperation.DELETE, ResourceType.GROUP, lambda request: request.groups_names)],
    waits=True,
    on_error=_failed,
)
async def delete_groups(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    """Remove the groups that have no members and that the client may delete."""
    denied: dict[str, None] = {}
    allowed = DeleteGroupsRequest()
    async for name in in_portions(request.groups_names):
        if context.denied(AclOperation.DELETE, ResourceType.GROUP, name):
            denied[name] = None
        else:
            allowed.groups_names.append(name)
    response = await context.groups.admin.delete_groups(allowed)
    code = denial(ResourceType.GROUP).code
    response.results.extend(DeletableGroupResult(group_id=name, error_code=code) for name in denied)
    return response
