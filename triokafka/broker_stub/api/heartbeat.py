"""Heartbeat (API key 12): keep a member of a classic group alive.

Versions 0-4. v1: throttle time. v3: static members (KIP-345). v4: flexible.
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import of_group
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from triokafka.security.acl import AclOperation


@handles(HeartbeatRequest, versions=range(0, 5), accesses=[of_group(AclOperation.READ)], waits=True)
async def heartbeat(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    """Extend the member's session. REBALANCE_IN_PROGRESS tells the member to rejoin."""
    return await context.groups.membership.heartbeat(request)
