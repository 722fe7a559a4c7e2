"""EndTxn (API key 26): commit or abort a transaction.

Versions 0–5; flexible from 3. v2: ProducerFencedError. v4: TransactionAbortableError. v5: the producer's epoch grows
with every transaction and is returned (KIP-890).
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, field
from triokafka.protocol.primitives import Boolean, Int16, Int64


class EndTxnRequest(Request["EndTxnResponse"], api_key=26, versions="0-5", flexible="3+"):
    """End a transaction."""

    transactional_id: str = fields.transactional_id()
    producer_id: int = field(Int64, doc="The producer's id.", errors=("InvalidProducerIdMappingError",))
    producer_epoch: int = fields.producer_epoch()
    committed: bool = field(Boolean, doc="True to commit, false to abort.", errors=("InvalidTxnStateError",))


class EndTxnResponse(Response, api_key=26, versions="0-5", flexible="3+"):
    """Whether the end was accepted."""

    throttle_time_ms: int = fields.throttle_time_ms()
    error_code: int = field(
        Int16,
        doc="The error code; 0 if the transaction was ended.",
        errors=(*fields.TRANSACTION_ERRORS, "TransactionalIdAuthorizationFailedError", "TransactionAbortableError"),
    )
    producer_id: int = field(
        Int64,
        versions="5+",
        ignorable=True,
        default=-1,
        doc="The producer id for the next transaction; -1 when it stays.",
    )
    producer_epoch: int = field(
        Int16,
        versions="5+",
        ignorable=True,
        default=-1,
        doc="The epoch for the next transaction; -1 when it stays.",
    )
