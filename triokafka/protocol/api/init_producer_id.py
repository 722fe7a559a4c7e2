"""InitProducerId (API key 22): get a producer id and epoch, fencing older producers of a transactional id.

Versions 0–6 (6 is not stable yet); flexible from 2. v3: a producer can bump its own epoch (KIP-360). v4:
ProducerFencedError. v5: TransactionAbortableError (KIP-890). v6: two-phase commit (KIP-939).
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, field
from triokafka.protocol.primitives import Boolean, Int16, Int32, Int64, String


class InitProducerIdRequest(Request["InitProducerIdResponse"], api_key=22, versions="0-5", flexible="2+", unstable="6"):
    """Ask for a producer id."""

    transactional_id: str | None = field(
        String,
        nullable="0+",
        doc="The transactional id; null for an idempotent producer without transactions.",
        errors=("TransactionalIdAuthorizationFailedError", "InvalidRequestError"),
    )
    transaction_timeout_ms: int = field(
        Int32,
        doc="How many milliseconds a transaction may stay open until the broker aborts it.",
        errors=("InvalidTransactionTimeoutError",),
    )
    producer_id: int = field(
        Int64,
        versions="3+",
        default=-1,
        doc="The id that the producer has, to continue with it; -1 for a new one.",
        errors=("InvalidProducerIdMappingError",),
    )
    producer_epoch: int = field(
        Int16,
        versions="3+",
        default=-1,
        doc="The epoch that goes with it; -1 for a new one.",
        errors=("InvalidProducerEpochError", "ProducerFencedError"),
    )
    enable2_pc: bool = field(
        Boolean,
        versions="6+",
        doc="Whether the client coordinates two-phase commits, so that the broker never times out its transactions.",
        errors=("TransactionalIdAuthorizationFailedError",),
    )
    keep_prepared_txn: bool = field(
        Boolean,
        versions="6+",
        doc="Whether to keep a transaction that is prepared, and not abort it.",
    )


class InitProducerIdResponse(Response, api_key=22, versions="0-5", flexible="2+", unstable="6"):
    """The producer id and epoch."""

    throttle_time_ms: int = fields.throttle_time_ms(ignorable=True)
    error_code: int = field(
        Int16,
        doc="The error code; 0 for success.",
        errors=(
            *fields.TRANSACTION_ERRORS,
            "InvalidTransactionTimeoutError",
            "TransactionalIdAuthorizationFailedError",
            "ClusterAuthorizationFailedError",
            "InvalidRequestError",
            "TransactionAbortableError",
        ),
    )
    producer_id: int = field(Int64, default=-1, doc="The producer's id; -1 on an error.")
    producer_epoch: int = field(Int16, doc="The producer's epoch.")
    ongoing_txn_producer_id: int = field(
        Int64,
        versions="6+",
        default=-1,
        doc="The producer id of the prepared transaction that was kept; -1 for none.",
    )
    ongoing_txn_producer_epoch: int = field(
        Int16,
        versions="6+",
        default=-1,
        doc="The epoch of the prepared transaction that was kept; -1 for none.",
    )
