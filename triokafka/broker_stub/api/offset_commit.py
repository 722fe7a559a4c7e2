"""OffsetCommit (API key 8): store the committed offsets of a group.

Versions 2-10. v2-v4: retention time of the commit. v3: throttle time. v6: leader epoch of the last consumed record
(KIP-320). v7: static members (KIP-345). v8: flexible. v9: GROUP_ID_NOT_FOUND instead of ILLEGAL_GENERATION for an
unknown group (KIP-848). v10: topic ids instead of names.
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import of_group, of_topics
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
        of_group(AclOperation.READ),
        of_topics(AclOperation.READ),
    ],
    waits=True,
    on_error=_failed,
)
async def offset_commit(request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
    """Write the offsets to the group's partition and respond when the write is committed."""
    return await context.groups.offsets.commit_offsets(
        request,
        version=context.version,
        may_read=lambda name: not context.denied(AclOperation.READ, ResourceType.TOPIC, name),
    )
