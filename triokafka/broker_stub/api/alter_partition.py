"""AlterPartition (API key 56): leaders change the in-sync sets of their partitions (KIP-497).

Versions 2-3. v3: in-sync replicas with their broker epochs (KIP-903).
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from triokafka.security.acl import AclOperation


@handles(AlterPartitionRequest, versions=range(2, 4), accesses=[cluster(AclOperation.CLUSTER_ACTION)])
async def alter_partition(request: AlterPartitionRequest, context: RequestContext) -> AlterPartitionResponse:
    """Let the controller decide about each partition."""
    return await context.gateway_without_slot().alter_partition(request)
