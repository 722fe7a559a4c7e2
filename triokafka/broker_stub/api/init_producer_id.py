"""InitProducerId (API key 22): allocate a producer id, or give a transactional id's producer a new epoch.

Versions 0-5. v2: flexible. v3: the producer may send its current id and epoch (KIP-360). v4: PRODUCER_FENCED. v5:
TRANSACTION_ABORTABLE. Every request without a transactional id gets a new id with epoch 0, even if it sends a current
id: the producer then restarts its sequence numbers at 0.
"""

from __future__ import annotations

from typing import Final

from triokafka.broker_stub.api.transaction_errors import TRANSACTIONAL_ID, WRITE, transaction_error
from triokafka.broker_stub.authorizer import Access, denial, or_cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.coordinator.transaction.metadata import ProducerIdAndEpoch
from triokafka.errors import InvalidRequestError, KafkaError
from triokafka.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from triokafka.security.acl import AclOperation, ResourceType

_NONE: Final = -1
_FENCED_SINCE: Final = 4


def _failed(request: InitProducerIdRequest, context: RequestContext, code: int, message: str) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=_NONE, producer_epoch=_NONE)


@handles(
    InitProducerIdRequest,
    versions=range(0, 6),
    # Permission to write to any topic suffices (KIP-679), so the handler checks both permissions.
    accesses=[
        Access(WRITE, TRANSACTIONAL_ID, lambda request: [request.transactional_id or ""]),
        or_cluster(AclOperation.IDEMPOTENT_WRITE),
        Access(AclOperation.WRITE, ResourceType.TOPIC, lambda request: ()),
    ],
    waits=True,
    on_error=_failed,
)
async def init_producer_id(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """Take the next id of this broker's block, or ask the transaction coordinator.

    Waits for a new block from the controller when the block is used up.
    """
    if request.transactional_id == "":
        raise InvalidRequestError("a transactional id may not be empty")
    if request.transactional_id is not None:
        return await _of_transactional_id(request.transactional_id, request, context)
    if context.denied_for_cluster(AclOperation.IDEMPOTENT_WRITE, audit=False) and not context.allowed_somewhere(
        AclOperation.WRITE, ResourceType.TOPIC
    ):
        raise denial(ResourceType.CLUSTER)(f"{context.principal} may write to no topic")
    _expected(request)
    return InitProducerIdResponse(producer_id=await context.broker.producer_ids.next_id(), producer_epoch=0)


async def _of_transactional_id(
    transactional_id: str, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    if context.denied(WRITE, TRANSACTIONAL_ID, transactional_id):
        raise denial(TRANSACTIONAL_ID)(f"{context.principal} may not use the transactional id {transactional_id!r}")
    expected = _expected(request)
    try:
        found = await context.transactions.initialize(
            transactional_id, timeout_ms=request.transaction_timeout_ms, expected=expected
        )
    except KafkaError as error:
        code = transaction_error(error, context, fenced_since=_FENCED_SINCE)
        return InitProducerIdResponse(error_code=code, producer_id=_NONE, producer_epoch=_NONE)
    return InitProducerIdResponse(producer_id=found.producer_id, producer_epoch=found.epoch)


def _expected(request: InitProducerIdRequest) -> ProducerIdAndEpoch | None:
    """Return the id and epoch that the producer has; None for none."""
    if (request.producer_id == _NONE) is not (request.producer_epoch == _NONE):
        raise InvalidRequestError(
            f"producer id {request.producer_id} and epoch {request.producer_epoch}: send both, or -1 for both"
        )
    return None if request.producer_id == _NONE else ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
