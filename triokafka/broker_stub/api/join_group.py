"""JoinGroup (API key 11): join the next generation of a classic group.

Versions 0-9. v1: separate rebalance timeout. v2: throttle time. v4: a new member first receives its id
(MEMBER_ID_REQUIRED, KIP-394). v5: static members (KIP-345). v6: flexible. v7: the response contains the protocol type
(KIP-559). v8: a reason (KIP-800). v9: a restarted static leader skips the assignment (KIP-814).
"""

from __future__ import annotations

from typing import Final

from triokafka.broker_stub.authorizer import of_group
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.join_group import JoinGroupRequest, JoinGroupResponse
from triokafka.security.acl import AclOperation

_NULL_SINCE: Final = 7
"""Versions whose protocol name is null in a response with an error."""


def _failed(request: JoinGroupRequest, context: RequestContext, code: int, message: str) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, protocol_name=None if context.version >= _NULL_SINCE else "")


@handles(JoinGroupRequest, versions=range(0, 10), accesses=[of_group(AclOperation.READ)], waits=True, on_error=_failed)
async def join_group(request: JoinGroupRequest, context: RequestContext) -> JoinGroupResponse:
    """Wait until all members have joined and return the new generation."""
    response = await context.groups.membership.join_group(
        request, version=context.version, client_id=context.client_id, client_host=context.client_host
    )
    if response.error_code and not response.protocol_name and context.version >= _NULL_SINCE:
        response.protocol_name = None
    return response
