"""OffsetCommit (API key 8): a group's positions are stored.

Versions 2-10. v3: throttle time. Up to v4 a retention time of the client's own. v6: leader epoch of the last record
read (KIP-320). v7: static members (KIP-345). v8: flexible. v9: GROUP_ID_NOT_FOUND instead of ILLEGAL_GENERATION for a
group that is not there (KIP-848). v10: topic ids instead of names.
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import Access
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.coordinator.offsets.commit import commit_failed
from triokafka.protocol.api.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from triokafka.security.acl import AclOperation, ResourceType


def _failed(request: OffsetCommitRequest, context: RequestContext, code: int, message: str) -> OffsetCommitResponse:
    return commit_failed(request, code)


@handles(
    OffsetCommitRequest,
    versions=range(2, 11),
    accesses=[
        Access(AclOperation.READ, ResourceType.GROUP, lambda request: [request.group_id], per_item=False),
        Access(AclOperation.READ, ResourceType.TOPIC, lambda request: [topic.name for topic in request.topics]),
    ],
    waits=True,
    on_error=_failed,
)
async def offset_commit(request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
    """Store the positions, and answer when they are committed."""
    return await context.groups.offsets.commit_offsets(
        request,
        version=context.version,
        may_read=lambda name: not context.denied(AclOperation.READ, ResourceType.TOPIC, name),
    )
