"""DescribeProducers (API key 61): the producer state of a partition, from any of its replicas (KIP-664).

Version 0.
"""

from __future__ import annotations

from triokafka import errors, topic_names
from triokafka.broker_stub.authorizer import denial, of_topics
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.broker_stub.work_budget import WorkBudget
from triokafka.protocol.api.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from triokafka.security.acl import AclOperation, ResourceType
from triokafka.structs import TopicPartition


def _failed(
    request: DescribeProducersRequest, context: RequestContext, code: int, message: str
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    PartitionResponse(partition_index=number, error_code=code, error_message=message)
                    for number in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


@handles(DescribeProducersRequest, versions=range(0, 1), accesses=[of_topics(AclOperation.READ)], on_error=_failed)
async def describe_producers(request: DescribeProducersRequest, context: RequestContext) -> DescribeProducersResponse:
    """Describe the producers of the partitions of which this broker has a replica."""
    response, budget = DescribeProducersResponse(), WorkBudget()
    for topic in request.topics:
        result = TopicResponse(name=topic.name)
        response.topics.append(result)
        for number in topic.partition_indexes:
            result.partitions.append(_partition(TopicPartition(topic.name, number), context))
            await budget.spend(1 + len(result.partitions[-1].active_producers))
    return response


def _partition(key: TopicPartition, context: RequestContext) -> PartitionResponse:
    try:
        if context.denied(AclOperation.READ, ResourceType.TOPIC, key.topic):
            raise denial(ResourceType.TOPIC)("Authorization failed.")
        topic_names.validate(key.topic)
        partition = context.replicas.partition(key)
    except errors.BrokerResponseError as error:
        return PartitionResponse(partition_index=key.partition, error_code=error.code, error_message=str(error) or None)
    producers = partition.log.producers
    active = []
    for state in producers.all():
        begun_at = producers.transaction_start(state.producer_id)
        active.append(
            ProducerState(
                producer_id=state.producer_id,
                producer_epoch=state.epoch,
                last_sequence=state.last_sequence,
                last_timestamp=state.last_timestamp,
                coordinator_epoch=state.coordinator_epoch,
                current_txn_start_offset=-1 if begun_at is None else begun_at,
            )
        )
    return PartitionResponse(partition_index=key.partition, active_producers=active)
