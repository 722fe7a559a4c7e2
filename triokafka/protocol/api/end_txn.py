"""EndTxn (API key 26): commit or abort a transaction.

Versions 0–5; flexible from 3. v2: ProducerFencedError. v4: TransactionAbortableError. v5: the producer's epoch grows
with every transaction and is returned (KIP-890).
"""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, field
from triokafka.protocol.primitives import Boolean, Int16, Int32, Int64, String


class EndTxnRequest(Request["EndTxnResponse"], api_key=26, versions="0-5", flexible="3+"):
    """End a transaction."""

    transactional_id: str = field(
        String,
        doc="The transactional id.",
        errors=("TransactionalIdAuthorizationFailedError",),
    )
    producer_id: int = field(Int64, doc="The producer's id.", errors=("InvalidProducerIdMappingError",))
    producer_epoch: int = field(
        Int16,
        doc="The producer's epoch; an older one than the current is fenced.",
        errors=("InvalidProducerEpochError", "ProducerFencedError"),
    )
    committed: bool = field(Boolean, doc="True to commit, false to abort.", errors=("InvalidTxnStateError",))


class EndTxnResponse(Response, api_key=26, versions="0-5", flexible="3+"):
    """Whether the end was accepted."""

    throttle_time_ms: int = field(
        Int32,
        doc="How many milliseconds the client shall stay silent, because it exceeded a quota; 0 for none.",
    )
    error_code: int = field(
        Int16,
        doc="Why the transaction was not ended; 0 when it was.",
        errors=(
            "CoordinatorLoadInProgressError",
            "CoordinatorNotAvailableError",
            "NotCoordinatorError",
            "InvalidProducerIdMappingError",
            "InvalidProducerEpochError",
            "ProducerFencedError",
            "InvalidTxnStateError",
            "ConcurrentTransactionsError",
            "TransactionalIdAuthorizationFailedError",
            "TransactionAbortableError",
        ),
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
