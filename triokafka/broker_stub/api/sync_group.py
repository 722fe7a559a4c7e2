"""SyncGroup (API key 14): the leader brings the assignment, every member gets its part.

Versions 0-5. v1: throttle time. v3: static members (KIP-345). v4: flexible. v5: protocol type and name, which must be
there and be the group's (KIP-559).
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import Access
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.sync_group import SyncGroupRequest, SyncGroupResponse
from triokafka.security.acl import AclOperation, ResourceType


@handles(
    SyncGroupRequest,
    versions=range(0, 6),
    accesses=[Access(AclOperation.READ, ResourceType.GROUP, lambda request: [request.group_id], per_item=False)],
    waits=True,
)
async def sync_group(request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse:
    """Wait for the leader's assignment to be stored, and answer with the member's part of it."""
    return await context.groups.membership.sync_group(request, version=context.version)
