"""AddOffsetsToTxn (API key 25): register a group with a transaction before committing its offsets in it.

Versions 0–4; flexible from 3. v2: ProducerFencedError. v4: TransactionAbortableError (KIP-890).
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, field
from triokafka.protocol.primitives import Int16, Int64


class AddOffsetsToTxnRequest(Request["AddOffsetsToTxnResponse"], api_key=25, versions="0-4", flexible="3+"):
    """Register a group with a transaction."""

    transactional_id: str = fields.transactional_id()
    producer_id: int = field(Int64, doc="The producer's id.", errors=("InvalidProducerIdMappingError",))
    producer_epoch: int = fields.producer_epoch()
    group_id: str = fields.group_id()


class AddOffsetsToTxnResponse(Response, api_key=25, versions="0-4", flexible="3+"):
    """Whether it is registered."""

    throttle_time_ms: int = fields.throttle_time_ms()
    error_code: int = field(
        Int16,
        doc="The error code; 0 if the group is registered.",
        errors=(
            *fields.TRANSACTION_ERRORS,
            "InvalidGroupIdError",
            "GroupAuthorizationFailedError",
            "TransactionalIdAuthorizationFailedError",
            "TransactionAbortableError",
        ),
    )
