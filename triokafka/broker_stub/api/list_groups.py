"""ListGroups (API key 16): list the groups that this broker coordinates.

Versions 0-5. v1: throttle time. v3: flexible. v4: state of each group and filter by state (KIP-518). v5: type of each
group and filter by type (KIP-848).
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import Access, or_cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.broker_stub.work_budget import in_portions
from triokafka.protocol.api.list_groups import ListGroupsRequest, ListGroupsResponse
from triokafka.security.acl import AclOperation, ResourceType


@handles(
    ListGroupsRequest,
    versions=range(0, 6),
    accesses=[
        or_cluster(AclOperation.DESCRIBE),
        Access(AclOperation.DESCRIBE, ResourceType.GROUP, lambda request: ()),
    ],
)
async def list_groups(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    """List the groups that match the filters and that the client may see.

    Permission to describe the cluster includes all groups.
    """
    response = await context.groups.admin.list_groups(request)
    if context.denied_for_cluster(AclOperation.DESCRIBE, audit=False):
        response.groups = [
            group
            async for group in in_portions(response.groups)
            if not context.denied(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id, audit=False)
        ]
    context.items = len(response.groups)
    return response
