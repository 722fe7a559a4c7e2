"""ConsumerGroupDescribe (API key 69): state and members of groups that use the consumer protocol (KIP-848).

Versions 0-1, all flexible. v1: member type, classic or consumer (KIP-1099).
"""

from __future__ import annotations

from triokafka.broker_stub.api.group_version import require_group_version
from triokafka.broker_stub.authorizer import Access, denial
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.broker_stub.work_budget import in_portions
from triokafka.errors import TopicAuthorizationFailedError
from triokafka.protocol.api.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from triokafka.security.acl import AclOperation, ResourceType


def _failed(
    request: ConsumerGroupDescribeRequest, context: RequestContext, code: int, message: str
) -> ConsumerGroupDescribeResponse:
    groups = [DescribedGroup(group_id=name, error_code=code, error_message=message) for name in request.group_ids]
    return ConsumerGroupDescribeResponse(groups=groups)


@handles(
    ConsumerGroupDescribeRequest,
    versions=range(0, 2),
    accesses=[Access(AclOperation.DESCRIBE, ResourceType.GROUP, lambda request: request.group_ids)],
    on_error=_failed,
    waits=True,
)
async def consumer_group_describe(
    request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    """Describe the groups that the client may see. A group with a topic that the client may not see gets an error."""
    require_group_version(context)
    response = await context.groups.admin.consumer_group_describe(request)
    async for i, group in in_portions(enumerate(response.groups)):
        if context.denied(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id):
            response.groups[i] = DescribedGroup(group_id=group.group_id, error_code=denial(ResourceType.GROUP).code)
        elif any(context.denied(AclOperation.DESCRIBE, ResourceType.TOPIC, name) for name in _topics_of(group)):
            response.groups[i] = DescribedGroup(
                group_id=group.group_id,
                error_code=TopicAuthorizationFailedError.code,
                error_message="The group has described topic(s) that the client is not authorized to describe.",
            )
        elif request.include_authorized_operations and not group.error_code:
            group.authorized_operations = context.allowed_operations(ResourceType.GROUP, group.group_id)
    return response


def _topics_of(group: DescribedGroup) -> set[str]:
    names: set[str] = set()
    for member in group.members:
        names.update(member.subscribed_topic_names)
        for assignment in (member.assignment, member.target_assignment):
            names.update(topic.topic_name for topic in assignment.topic_partitions)
    return names
