"""ElectLeaders (API key 43): elect the preferred replica, or any live replica, as the leader (KIP-183, KIP-460).

Versions 0-2. v1: unclean elections and a top-level error code. v2: flexible.
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from triokafka.security.acl import AclOperation


def _failed(request: ElectLeadersRequest, context: RequestContext, code: int, message: str) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=code if context.version >= 1 else 0,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=number, error_code=code, error_message=message)
                    for number in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


@handles(ElectLeadersRequest, versions=range(0, 3), accesses=[cluster(AclOperation.ALTER)], on_error=_failed)
async def elect_leaders(request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    """Forward the request to the controller."""
    response = await context.gateway_without_slot().send(request)
    context.items = sum(len(topic.partition_result) for topic in response.replica_election_results)
    return response
