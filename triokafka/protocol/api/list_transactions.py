"""ListTransactions (API key 66): transactions that a coordinator knows (KIP-664).

Versions 0–2; flexible. v1: by duration (KIP-994). v2: by a pattern of their ids (KIP-1152).
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int64, String


class ListTransactionsRequest(Request["ListTransactionsResponse"], api_key=66, versions="0-2", flexible="0+"):
    """Ask for transactions."""

    state_filters: list[str] = field(Array(String), doc="States to look for; empty for all.")
    producer_id_filters: list[int] = field(Array(Int64), doc="Producer ids to look for; empty for all.")
    duration_filter: int = field(
        Int64, versions="1+", default=-1, doc="Only transactions that are open for longer, in ms; negative for all."
    )
    transactional_id_pattern: str | None = field(
        String,
        versions="2+",
        nullable="2+",
        default=None,
        doc="Only ids that this regular expression matches; null or empty for all.",
    )


class TransactionState(Struct):
    """One transactional id."""

    transactional_id: str = field(String, doc="The transactional id.")
    producer_id: int = field(Int64, doc="The id of its producer.")
    transaction_state: str = field(String, doc="The state of the transaction.")


class ListTransactionsResponse(Response, api_key=66, versions="0-2", flexible="0+"):
    """The transactions that were found."""

    throttle_time_ms: int = fields.throttle_time_ms()
    error_code: int = field(
        Int16,
        doc="The error code; 0 means success.",
        errors=(
            "CoordinatorLoadInProgressError",
            "CoordinatorNotAvailableError",
            "InvalidRegularExpressionError",
        ),
    )
    unknown_state_filters: list[str] = field(Array(String), doc="States of the request that do not exist.")
    transaction_states: list[TransactionState] = field(Array(TransactionState), doc="The transactional ids.")
