"""AlterPartitionReassignments (API key 45): move partitions to other brokers (KIP-455).

Versions 0-1. v1: the number of replicas can be held.
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import Operation, cluster
from triokafka.broker_stub.handlers import RequestContext, handles
from triokafka.protocol.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)


@handles(AlterPartitionReassignmentsRequest, versions=range(0, 2), accesses=[cluster(Operation.ALTER)])
async def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Hand the request to the controller."""
    response = await context.broker.controller.alter_partition_reassignments(request)
    context.items = sum(len(topic.partitions) for topic in response.responses)
    return response
