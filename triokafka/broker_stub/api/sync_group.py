"""SyncGroup (API key 14): the group leader sends the assignment, and each member receives its part.

Versions 0-5. v1: throttle time. v3: static members (KIP-345). v4: flexible. v5: protocol type and name, required and
equal to the group's (KIP-559).
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import of_group
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.sync_group import SyncGroupRequest, SyncGroupResponse
from triokafka.security.acl import AclOperation


@handles(SyncGroupRequest, versions=range(0, 6), accesses=[of_group(AclOperation.READ)], waits=True)
async def sync_group(request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse:
    """Wait until the leader's assignment is stored and return the member's part."""
    return await context.groups.membership.sync_group(request, version=context.version)
