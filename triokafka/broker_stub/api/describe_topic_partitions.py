"""DescribeTopicPartitions (API key 75): topics with their partitions, in pages.

Version 0. Topics are sorted by name. A cursor names the first partition of the next page (KIP-966).
"""

from __future__ import annotations

from triokafka import errors
from triokafka.broker_stub.api.metadata import available_leader, offline_replicas
from triokafka.broker_stub.authorizer import of_topics
from triokafka.broker_stub.metadata.image import NO_LEADER, MetadataImage, PartitionImage
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.broker_stub.work_budget import WorkBudget
from triokafka.protocol.api.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from triokafka.security.acl import AclOperation, ResourceType
from triokafka.topic_names import is_internal


def _failed(
    request: DescribeTopicPartitionsRequest, context: RequestContext, code: int, message: str
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[DescribeTopicPartitionsResponseTopic(error_code=code, name=topic.name) for topic in request.topics]
    )


@handles(
    DescribeTopicPartitionsRequest,
    versions=range(0, 1),
    accesses=[of_topics(AclOperation.DESCRIBE)],
    on_error=_failed,
)
async def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """Read one page from the metadata image. A request without topics requests all topics."""
    image = context.metadata.image
    names = sorted({topic.name for topic in request.topics}) or [
        name
        for name in sorted(image.topics)
        if not context.denied(AclOperation.DESCRIBE, ResourceType.TOPIC, name, audit=False)
    ]
    first_partition = 0
    if request.cursor is not None:
        if request.cursor.partition_index < 0:
            raise errors.InvalidRequestError(f"the cursor's partition {request.cursor.partition_index} is negative")
        if request.topics and request.cursor.topic_name not in names:
            raise errors.InvalidRequestError(f"the cursor's topic {request.cursor.topic_name} is not in the request")
        names = [name for name in names if name >= request.cursor.topic_name]
        if names and names[0] == request.cursor.topic_name:
            first_partition = request.cursor.partition_index
    room = min(max(request.response_partition_limit, 1), context.config.max_request_partition_size_limit)
    response, budget = DescribeTopicPartitionsResponse(), WorkBudget()
    for name in names:
        await budget.spend()
        topic = image.topics.get(name)
        if context.denied(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            code = errors.TopicAuthorizationFailedError.code
            response.topics.append(DescribeTopicPartitionsResponseTopic(error_code=code, name=name))
            continue
        if topic is None:
            code = context.topic_creation.name_error(name) or errors.UnknownTopicOrPartitionError.code
            operations = context.allowed_operations(ResourceType.TOPIC, name)
            response.topics.append(
                DescribeTopicPartitionsResponseTopic(error_code=code, name=name, topic_authorized_operations=operations)
            )
            continue
        if not room:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        states = [state for number, state in sorted(topic.partitions.items()) if number >= first_partition]
        first_partition = 0
        described = DescribeTopicPartitionsResponseTopic(
            name=name,
            topic_id=topic.topic_id,
            is_internal=is_internal(name),
            topic_authorized_operations=context.allowed_operations(ResourceType.TOPIC, name),
        )
        for state in states[:room]:
            described.partitions.append(_partition(name, state, image, context))
            await budget.spend()
        context.items += 1 + len(described.partitions)
        response.topics.append(described)
        if len(states) > room:
            response.next_cursor = Cursor(topic_name=name, partition_index=states[room].partition)
            break
        room -= len(states)
    return response


def _partition(
    topic: str, state: PartitionImage, image: MetadataImage, context: RequestContext
) -> DescribeTopicPartitionsResponsePartition:
    offline = offline_replicas(topic, state, image, context)
    leader = available_leader(state, image, offline)
    return DescribeTopicPartitionsResponsePartition(
        error_code=0 if leader != NO_LEADER else errors.LeaderNotAvailableError.code,
        partition_index=state.partition,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        eligible_leader_replicas=list(state.eligible_leader_replicas),
        last_known_elr=list(state.last_known_elr),
        offline_replicas=offline,
    )
