"""LeaveGroup (API key 13): members leave a classic group, or an administrator removes static ones.

Versions 0-5. v1: throttle time. v3: several members, named by id or by instance, each with its own error (KIP-345). v4:
flexible. v5: a reason (KIP-800).
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import Access
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.leave_group import LeaveGroupRequest, LeaveGroupResponse
from triokafka.security.acl import AclOperation, ResourceType


@handles(
    LeaveGroupRequest,
    versions=range(0, 6),
    accesses=[Access(AclOperation.READ, ResourceType.GROUP, lambda request: [request.group_id], per_item=False)],
    waits=True,
)
async def leave_group(request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    """Remove the members; the others rebalance."""
    return await context.groups.membership.leave_group(request, version=context.version)
