"""ListPartitionReassignments (API key 46): which partitions are being moved (KIP-455).

Version 0.
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import Operation, cluster
from triokafka.broker_stub.controller.reassignments import list_reassignments
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


@handles(ListPartitionReassignmentsRequest, versions=range(0, 1), accesses=[cluster(Operation.DESCRIBE)])
async def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """Answer from the image."""
    return list_reassignments(context.metadata.image, request)
