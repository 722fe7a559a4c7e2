"""ListPartitionReassignments (API key 46): list the reassignments in progress (KIP-455).

Version 0.
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from triokafka.security.acl import AclOperation


@handles(ListPartitionReassignmentsRequest, versions=range(0, 1), accesses=[cluster(AclOperation.DESCRIBE)])
async def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """Ask the active controller: it knows of every acknowledged change, and this broker of the older ones only."""
    return await context.gateway_without_slot().send(request)
