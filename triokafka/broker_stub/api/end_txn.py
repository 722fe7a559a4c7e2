"""EndTxn (API key 26): commit or abort a transaction.

Versions 0-5. v2: PRODUCER_FENCED. v3: flexible. v4: TRANSACTION_ABORTABLE. v5: the client uses transaction version 2;
every end bumps the producer's epoch, and the response has the new one (KIP-890).
"""

from __future__ import annotations

from typing import Final

from triokafka.broker_stub.api.transaction_errors import TRANSACTIONAL_ID, WRITE, transaction_error
from triokafka.broker_stub.authorizer import Access
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.errors import KafkaError
from triokafka.protocol.api.end_txn import EndTxnRequest, EndTxnResponse

_FENCED_SINCE: Final = 2
_EPOCH_BUMP_SINCE: Final = 5


@handles(
    EndTxnRequest,
    versions=range(0, 6),
    accesses=[Access(WRITE, TRANSACTIONAL_ID, lambda request: [request.transactional_id], per_item=False)],
    waits=True,
)
async def end_txn(request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    """Store the decision, and respond when it is committed. The coordinator writes the markers afterwards."""
    try:
        following = await context.transactions.end(
            request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            commits=request.committed,
            version=2 if context.version >= _EPOCH_BUMP_SINCE else 0,
        )
    except KafkaError as error:
        return EndTxnResponse(error_code=transaction_error(error, context, fenced_since=_FENCED_SINCE))
    return EndTxnResponse(producer_id=following.producer_id, producer_epoch=following.epoch)
