"""OffsetForLeaderEpoch (API key 23): find the end offset of a leader epoch, to detect log truncation (KIP-320).

Versions 2-4. v2: the client's leader epoch, to fence clients with old metadata. v3: replica id. v4: flexible.
"""

from __future__ import annotations

from triokafka import errors
from triokafka.broker_stub.authorizer import Access, denial, or_cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.broker_stub.work_budget import WorkBudget
from triokafka.protocol.api.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from triokafka.security.acl import AclOperation, ResourceType
from triokafka.structs import TopicPartition


def _failed(
    request: OffsetForLeaderEpochRequest, context: RequestContext, code: int, message: str
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[EpochEndOffset(error_code=code, partition=p.partition) for p in topic.partitions],
            )
            for topic in request.topics
        ]
    )


@handles(
    OffsetForLeaderEpochRequest,
    versions=range(2, 5),
    accesses=[
        or_cluster(AclOperation.CLUSTER_ACTION),  # for followers
        Access(AclOperation.DESCRIBE, ResourceType.TOPIC, lambda request: [t.topic for t in request.topics]),
    ],
    on_error=_failed,
)
async def offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    """Read the end offsets from the epoch cache of each partition that this broker leads."""
    response, budget = OffsetForLeaderEpochResponse(), WorkBudget()
    for topic in request.topics:
        result = OffsetForLeaderTopicResult(topic=topic.topic)
        response.topics.append(result)
        for asked in topic.partitions:
            result.partitions.append(_end_of_epoch(topic.topic, asked, context))
            await budget.spend()
    return response


def _end_of_epoch(topic: str, asked: OffsetForLeaderPartition, context: RequestContext) -> EpochEndOffset:
    try:
        if context.denied_for_cluster(AclOperation.CLUSTER_ACTION, audit=False) and context.denied(
            AclOperation.DESCRIBE, ResourceType.TOPIC, topic
        ):
            raise denial(ResourceType.TOPIC)
        partition = context.replicas.partition(TopicPartition(topic, asked.partition))
        partition.require_leader(asked.current_leader_epoch)
        epoch, end_offset = partition.end_offset_for_epoch(asked.leader_epoch)
    except errors.BrokerResponseError as error:
        return EpochEndOffset(error_code=error.code, partition=asked.partition)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
