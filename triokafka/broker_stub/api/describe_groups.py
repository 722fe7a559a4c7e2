"""DescribeGroups (API key 15): state and members of groups.

Versions 0-6. v1: throttle time. v3: authorized operations. v4: static members (KIP-345). v5: flexible. v6:
GROUP_ID_NOT_FOUND with a message for an unknown group (KIP-1043); earlier versions return the state Dead.
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import Access, denial
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.broker_stub.work_budget import in_portions
from triokafka.protocol.api.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from triokafka.security.acl import AclOperation, ResourceType


def _failed(request: DescribeGroupsRequest, context: RequestContext, code: int, message: str) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[DescribedGroup(group_id=name, error_code=code) for name in request.groups])


@handles(
    DescribeGroupsRequest,
    versions=range(0, 7),
    accesses=[Access(AclOperation.DESCRIBE, ResourceType.GROUP, lambda request: request.groups)],
    on_error=_failed,
)
async def describe_groups(request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    """Describe the groups that the client may see."""
    response = await context.groups.admin.describe_groups(request, version=context.version)
    async for i, group in in_portions(enumerate(response.groups)):
        context.items += 1 + len(group.members)
        if context.denied(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id):
            response.groups[i] = DescribedGroup(group_id=group.group_id, error_code=denial(ResourceType.GROUP).code)
        elif request.include_authorized_operations and not group.error_code:
            group.authorized_operations = context.allowed_operations(ResourceType.GROUP, group.group_id)
    return response
