"""AddOffsetsToTxn (API key 25): register a group with a transaction before committing its offsets in it.

Versions 0–4; flexible from 3. v2: ProducerFencedError. v4: TransactionAbortableError (KIP-890).
"""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, field
from triokafka.protocol.primitives import Int16, Int32, Int64, String


class AddOffsetsToTxnRequest(Request["AddOffsetsToTxnResponse"], api_key=25, versions="0-4", flexible="3+"):
    """Register a group with a transaction."""

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
    group_id: str = field(
        String,
        doc="The group's id.",
        errors=("InvalidGroupIdError", "GroupAuthorizationFailedError"),
    )


class AddOffsetsToTxnResponse(Response, api_key=25, versions="0-4", flexible="3+"):
    """Whether it is registered."""

    throttle_time_ms: int = field(
        Int32,
        doc="How many milliseconds the client shall stay silent, because it exceeded a quota; 0 for none.",
    )
    error_code: int = field(
        Int16,
        doc="Why the group is not registered; 0 when it is.",
        errors=(
            "CoordinatorLoadInProgressError",
            "CoordinatorNotAvailableError",
            "NotCoordinatorError",
            "InvalidProducerIdMappingError",
            "InvalidProducerEpochError",
            "ProducerFencedError",
            "InvalidTxnStateError",
            "ConcurrentTransactionsError",
            "InvalidGroupIdError",
            "GroupAuthorizationFailedError",
            "TransactionalIdAuthorizationFailedError",
            "TransactionAbortableError",
        ),
    )
