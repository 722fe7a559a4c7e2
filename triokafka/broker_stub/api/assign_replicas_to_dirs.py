"""AssignReplicasToDirs (API key 73): a broker reports in which of its log directories its replicas are (KIP-858).

Version 0.
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from triokafka.security.acl import AclOperation


@handles(AssignReplicasToDirsRequest, versions=range(0, 1), accesses=[cluster(AclOperation.CLUSTER_ACTION)])
async def assign_replicas_to_dirs(
    request: AssignReplicasToDirsRequest, context: RequestContext
) -> AssignReplicasToDirsResponse:
    """Pass the report to the controller."""
    return await context.gateway_without_slot().assign_replicas_to_dirs(request)
