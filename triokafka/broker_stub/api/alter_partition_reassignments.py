"""AlterPartitionReassignments (API key 45): move partitions to other brokers (KIP-455).

Versions 0-1. v1: the request can forbid a change of the replication factor (KIP-860).
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from triokafka.security.acl import AclOperation


def _failed(
    request: AlterPartitionReassignmentsRequest, context: RequestContext, code: int, message: str
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        error_code=code,
        error_message=message,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=partition.partition_index, error_code=code, error_message=message
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


@handles(
    AlterPartitionReassignmentsRequest,
    versions=range(0, 2),
    accesses=[cluster(AclOperation.ALTER)],
    on_error=_failed,
)
async def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Forward the request to the controller."""
    response = await context.gateway_without_slot().send(request)
    context.items = sum(len(topic.partitions) for topic in response.responses)
    return response
