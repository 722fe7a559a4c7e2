"""InitProducerId (API key 22): allocate a producer id for an idempotent producer.

Versions 0-5. v2: flexible. v3: the producer may send its current id and epoch (KIP-360). v4, v5: more errors. Every
request without a transactional id gets a new id with epoch 0, even if it sends a current id: the producer then restarts
its sequence numbers at 0. A request with a transactional id fails with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which
every client treats as fatal.
"""

from __future__ import annotations

from typing import Final

from triokafka.broker_stub.authorizer import Access, denial, or_cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.errors import InvalidRequestError, TransactionalIdAuthorizationFailedError
from triokafka.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from triokafka.security.acl import AclOperation, ResourceType

_NONE: Final = -1


def _failed(request: InitProducerIdRequest, context: RequestContext, code: int, message: str) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=_NONE, producer_epoch=_NONE)


@handles(
    InitProducerIdRequest,
    versions=range(0, 6),
    # Permission to write to any topic suffices (KIP-679), so the handler checks both permissions.
    accesses=[
        or_cluster(AclOperation.IDEMPOTENT_WRITE),
        Access(AclOperation.WRITE, ResourceType.TOPIC, lambda request: ()),
    ],
    on_error=_failed,
)
async def init_producer_id(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """Take the next id of this broker's block. Waits for a new block from the controller when the block is used up."""
    if request.transactional_id == "":
        raise InvalidRequestError("a transactional id may not be empty")
    if request.transactional_id is not None:
        raise TransactionalIdAuthorizationFailedError(
            f"transactional id {request.transactional_id!r}: this broker does not serve transactions"
        )
    if context.denied_for_cluster(AclOperation.IDEMPOTENT_WRITE) and not context.allowed_somewhere(
        AclOperation.WRITE, ResourceType.TOPIC
    ):
        raise denial(ResourceType.CLUSTER)(f"{context.principal} may write to no topic")
    if (request.producer_id == _NONE) is not (request.producer_epoch == _NONE):
        raise InvalidRequestError(
            f"producer id {request.producer_id} and epoch {request.producer_epoch}: send both, or -1 for both"
        )
    return InitProducerIdResponse(producer_id=await context.services.producer_ids.next_id(), producer_epoch=0)
