"""LeaveGroup (API key 13): remove members from a classic group, on their own request or an administrator's.

Versions 0-5. v1: throttle time. v3: several members, by member id or instance id, each with an error code (KIP-345).
v4: flexible. v5: a reason (KIP-800).
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import of_group
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.leave_group import LeaveGroupRequest, LeaveGroupResponse
from triokafka.security.acl import AclOperation


@handles(LeaveGroupRequest, versions=range(0, 6), accesses=[of_group(AclOperation.READ)], waits=True)
async def leave_group(request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    """Remove the members and rebalance the remaining ones."""
    return await context.groups.membership.leave_group(request, version=context.version)
