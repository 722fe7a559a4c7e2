"""OffsetFetch (API key 9): read the committed offsets of groups.

Versions 1-10. v2: null topics for all topics, and an error code for the group. v3: throttle time. v5: leader epochs.
v6: flexible. v7: ``require_stable`` (KIP-447). v8: several groups (KIP-709). v9: member id and epoch (KIP-848). v10:
topic ids instead of names.

With ``require_stable`` the response waits until the returned offsets are committed, and an offset with a pending
transactional commit gets UNSTABLE_OFFSET_COMMIT.
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import Access, denial
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.broker_stub.work_budget import in_portions
from triokafka.coordinator.offsets.fetch import as_response, asked_groups
from triokafka.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponseGroup
from triokafka.security.acl import AclOperation, ResourceType


def _group_ids(request: OffsetFetchRequest) -> list[str]:
    return [group.group_id for group in request.groups] or [request.group_id]


def _topics(request: OffsetFetchRequest) -> list[str]:
    single = [topic.name for topic in request.topics or ()]
    return [*single, *(topic.name for group in request.groups for topic in group.topics or ())]


def _failed(request: OffsetFetchRequest, context: RequestContext, code: int, message: str) -> OffsetFetchResponse:
    groups = [
        OffsetFetchResponseGroup(group_id=asked.group_id, error_code=code)
        for asked in asked_groups(request, context.version)
    ]
    return as_response(request, groups, context.version)


@handles(
    OffsetFetchRequest,
    versions=range(1, 11),
    accesses=[
        Access(AclOperation.DESCRIBE, ResourceType.GROUP, _group_ids),
        Access(AclOperation.DESCRIBE, ResourceType.TOPIC, _topics),
    ],
    on_error=_failed,
)
async def offset_fetch(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    """Look up the committed offsets of the groups that the client may see."""
    if request.require_stable:
        context.yield_slot()
    response = await context.groups.offsets.fetch_offsets(
        request,
        version=context.version,
        may_describe=lambda name: not context.denied(AclOperation.DESCRIBE, ResourceType.TOPIC, name),
    )
    refused = denial(ResourceType.GROUP)
    if not request.groups and context.denied(AclOperation.DESCRIBE, ResourceType.GROUP, request.group_id):
        return _failed(request, context, refused.code, "")
    async for group in in_portions(response.groups):
        if context.denied(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id):
            group.error_code, group.topics = refused.code, []
        context.items += sum(len(topic.partitions) for topic in group.topics)
    return response
