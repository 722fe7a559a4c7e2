"""DeleteRecords (API key 21): delete all records of a partition before an offset (-1: up to the high watermark).

Versions 0-2. v2: flexible. The response contains the partition's low watermark: the lowest log start offset of its
replicas.
"""

from __future__ import annotations

from triokafka import errors
from triokafka.broker_stub.authorizer import denial, of_topics
from triokafka.broker_stub.replica.delete_records import DeleteOutcome
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.broker_stub.work_budget import WorkBudget
from triokafka.protocol.api.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from triokafka.security.acl import AclOperation, ResourceType
from triokafka.structs import TopicPartition


def _failed(request: DeleteRecordsRequest, context: RequestContext, code: int, message: str) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=partition.partition_index, low_watermark=-1, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@handles(DeleteRecordsRequest, versions=range(0, 3), accesses=[of_topics(AclOperation.DELETE)], on_error=_failed)
async def delete_records(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    """Raise each partition's log start offset; wait at most ``timeout_ms`` until the followers have raised theirs."""
    outcomes: dict[TopicPartition, DeleteOutcome] = {}
    budget = WorkBudget()
    for topic in request.topics:
        for partition in topic.partitions:
            key = TopicPartition(topic.name, partition.partition_index)
            outcomes[key] = _delete(key, partition.offset, context)
            await budget.spend()
    operation = context.replicas.delay_delete(outcomes, request.timeout_ms)
    if operation is not None:
        await context.park(operation)
    response = DeleteRecordsResponse()
    for topic in request.topics:
        found = DeleteRecordsTopicResult(name=topic.name)
        response.topics.append(found)
        for partition in topic.partitions:
            outcome = outcomes[TopicPartition(topic.name, partition.partition_index)]
            found.partitions.append(
                DeleteRecordsPartitionResult(
                    partition_index=partition.partition_index,
                    low_watermark=-1 if outcome.error_code else outcome.low_watermark,
                    error_code=outcome.error_code,
                )
            )
            await budget.spend()
    return response


def _delete(key: TopicPartition, offset: int, context: RequestContext) -> DeleteOutcome:
    try:
        if context.denied(AclOperation.DELETE, ResourceType.TOPIC, key.topic):
            raise denial(ResourceType.TOPIC)
        return DeleteOutcome(context.replicas.delete_records_before(key, offset))
    except errors.BrokerResponseError as error:
        return DeleteOutcome(error_code=error.code)
    except OSError:
        return DeleteOutcome(error_code=errors.KafkaStorageError.code)
