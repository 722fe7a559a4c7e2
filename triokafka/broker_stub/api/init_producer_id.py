"""InitProducerId (API key 22): a producer id for idempotent produce.

Versions 0-5. v2: flexible. v3: a transactional producer may name the id it had. v4, v5: more errors. Without a
transactional id every request gets a new id with epoch 0; transactional ids are refused.
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import Operation, cluster
from triokafka.broker_stub.handlers import RequestContext, handles
from triokafka.errors import InvalidRequestError
from triokafka.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


@handles(InitProducerIdRequest, versions=range(0, 6), accesses=[cluster(Operation.IDEMPOTENT_WRITE)])
async def init_producer_id(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """Take the next id of this broker's block; waits for the controller when the block is used up."""
    if request.transactional_id is not None:
        raise InvalidRequestError(
            f"transactional id {request.transactional_id!r}: this broker does not serve transactions"
        )
    return InitProducerIdResponse(producer_id=await context.broker.producer_ids.next_id(), producer_epoch=0)
