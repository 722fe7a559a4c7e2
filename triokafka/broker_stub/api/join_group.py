"""JoinGroup (API key 11): join the next generation of a classic group.

Versions 0-9. v1: separate rebalance timeout. v2: throttle time. v4: a new member first receives its id
(MEMBER_ID_REQUIRED, KIP-394). v5: static members (KIP-345). v6: flexible. v7: the response contains the protocol type
(KIP-559). v8: a reason (KIP-800). v9: a restarted static leader skips the assignment (KIP-814).
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import Access
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.join_group import JoinGroupRequest, JoinGroupResponse
from triokafka.security.acl import AclOperation, ResourceType


@handles(
    JoinGroupRequest,
    versions=range(0, 10),
    accesses=[Access(AclOperation.READ, ResourceType.GROUP, lambda request: [request.group_id], per_item=False)],
    waits=True,
)
async def join_group(request: JoinGroupRequest, context: RequestContext) -> JoinGroupResponse:
    """Wait until all members have joined and return the new generation."""
    return await context.groups.membership.join_group(
        request, version=context.version, client_id=context.client_id, client_host=context.client_host
    )
