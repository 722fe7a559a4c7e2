"""JoinGroup (API key 11): a member asks to be part of the group's next generation.

Versions 0-9. v1: rebalance timeout apart from the session timeout. v2: throttle time. v4: a new member first gets its
id (MEMBER_ID_REQUIRED, KIP-394). v5: static members (KIP-345). v6: flexible. v7: the protocol type comes back
(KIP-559). v8: a reason (KIP-800). v9: a restarted static leader is told to skip the assignment (KIP-814).
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
    """Wait for the round to be complete, and answer with the new generation."""
    return await context.groups.membership.join_group(
        request, version=context.version, client_id=context.client_id, client_host=context.client_host
    )
