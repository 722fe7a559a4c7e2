"""ListOffsets (API key 2): find the offset for a timestamp, or the start or end offset of a partition.

Versions 1-11. v2: isolation level. v4: leader epochs. v5: OFFSET_NOT_AVAILABLE. v6: flexible. v7: the record with the
greatest timestamp (-3). v8: the start of the local log (-4). v9: the last tiered offset (-5). v10: a timeout for tiered
storage. v11: the first offset not yet tiered (-6).
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from triokafka import errors
from triokafka.broker_stub.authorizer import denial, of_topics
from triokafka.broker_stub.replica.offset_lookup import (
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    look_up_offset,
)
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.broker_stub.work_budget import BUDGET, WorkBudget
from triokafka.protocol.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from triokafka.security.acl import AclOperation, ResourceType
from triokafka.structs import TopicPartition

_SINCE: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_LOWEST_TIMESTAMP: Final = EARLIEST_PENDING_UPLOAD


def _failed(request: ListOffsetsRequest, context: RequestContext, code: int, message: str) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@handles(ListOffsetsRequest, versions=range(1, 12), accesses=[of_topics(AclOperation.DESCRIBE)], on_error=_failed)
async def list_offsets(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    """Look up the offset of each partition. A partition that the request names twice gets INVALID_REQUEST."""
    if request.isolation_level not in (0, 1):
        raise errors.InvalidRequestError(f"isolation level {request.isolation_level} is unknown: it must be 0 or 1")
    asked = [(topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions]
    twice = {key for key, count in Counter(asked).items() if count > 1}
    response = ListOffsetsResponse()
    budget = WorkBudget()
    for topic in request.topics:
        found = ListOffsetsTopicResponse(name=topic.name)
        response.topics.append(found)
        for partition in topic.partitions:
            key = TopicPartition(topic.name, partition.partition_index)
            found.partitions.append(_look_up(key, partition, request, context, twice=key in twice))
            # A lookup by timestamp decompresses a whole batch.
            await budget.spend(BUDGET if partition.timestamp >= 0 else 1)
    return response


def _look_up(
    key: TopicPartition,
    asked: ListOffsetsPartition,
    request: ListOffsetsRequest,
    context: RequestContext,
    *,
    twice: bool,
) -> ListOffsetsPartitionResponse:
    response = ListOffsetsPartitionResponse(partition_index=key.partition)
    try:
        if context.denied(AclOperation.DESCRIBE, ResourceType.TOPIC, key.topic):
            raise denial(ResourceType.TOPIC)
        context.faults.check(2, key.topic, key.partition)
        if twice:
            raise errors.InvalidRequestError(f"{key} is in the request twice")
        if asked.timestamp < _LOWEST_TIMESTAMP or context.version < _SINCE.get(asked.timestamp, 1):
            raise errors.UnsupportedVersionError(f"version {context.version} has no timestamp {asked.timestamp}")
        partition = context.replicas.partition(key)
        partition.require_leader(asked.current_leader_epoch)
        found = look_up_offset(
            partition, asked.timestamp, read_committed=request.isolation_level == 1, follower=request.replica_id >= 0
        )
    except errors.OffsetNotAvailableError as error:
        # Clients before version 5 do not know this error. LEADER_NOT_AVAILABLE makes them retry as well.
        response.error_code = error.code if context.version >= 5 else errors.LeaderNotAvailableError.code
    except errors.BrokerResponseError as error:
        response.error_code = error.code
    else:
        if found is not None:
            response.offset, response.timestamp = found.offset, found.timestamp
            if context.version >= 4:
                response.leader_epoch = found.leader_epoch
    return response
