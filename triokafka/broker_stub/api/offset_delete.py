"""OffsetDelete (API key 47): delete a group's committed offsets for topics without a subscribed member (KIP-496).

Version 0.
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import of_group, of_topics
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from triokafka.security.acl import AclOperation, ResourceType


@handles(
    OffsetDeleteRequest,
    versions=range(0, 1),
    accesses=[
        of_group(AclOperation.DELETE),
        of_topics(AclOperation.READ),
    ],
    waits=True,
)
async def offset_delete(request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    """Delete the offsets and respond when the deletion is committed."""
    return await context.groups.offsets.delete_offsets(
        request, may_read=lambda name: not context.denied(AclOperation.READ, ResourceType.TOPIC, name)
    )
