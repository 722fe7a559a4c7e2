"""AllocateProducerIds (API key 67): a broker gets a block of producer ids (KIP-730).

Version 0.
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from triokafka.security.acl import AclOperation


@handles(AllocateProducerIdsRequest, versions=range(0, 1), accesses=[cluster(AclOperation.CLUSTER_ACTION)])
async def allocate_producer_ids(
    request: AllocateProducerIdsRequest, context: RequestContext
) -> AllocateProducerIdsResponse:
    """Allocate the next block to the broker."""
    block = await context.gateway_without_slot().allocate_producer_ids(request.broker_id, request.broker_epoch)
    return AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.size)
