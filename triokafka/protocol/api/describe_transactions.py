"""DescribeTransactions (API key 65): the state of transactional ids (KIP-664).

Version 0; flexible.
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int32, Int64, String


class DescribeTransactionsRequest(Request["DescribeTransactionsResponse"], api_key=65, versions="0", flexible="0+"):
    """Ask for transactional ids."""

    transactional_ids: list[str] = field(Array(String), doc="The transactional ids.")


class TopicData(Struct):
    """A topic with partitions in the transaction."""

    topic: str = field(String, doc="The topic's name.")
    partitions: list[int] = field(Array(Int32), doc="Numbers of the partitions.")


class TransactionState(Struct):
    """One transactional id and its transaction."""

    error_code: int = field(
        Int16,
        doc="The error code; 0 means success.",
        errors=(*fields.COORDINATOR_ERRORS, "TransactionalIdNotFoundError", "TransactionalIdAuthorizationFailedError"),
    )
    transactional_id: str = field(String, doc="The transactional id.")
    transaction_state: str = field(String, doc="The state of the transaction.")
    transaction_timeout_ms: int = field(Int32, doc="How long its transactions may take, in ms.")
    transaction_start_time_ms: int = field(
        Int64, doc="When the open transaction began, in wall-clock ms; -1 without one."
    )
    producer_id: int = field(Int64, doc="The id of its producer.")
    producer_epoch: int = field(Int16, doc="The epoch of its producer.")
    topics: list[TopicData] = field(Array(TopicData), doc="The partitions in the open transaction.")


class DescribeTransactionsResponse(Response, api_key=65, versions="0", flexible="0+"):
    """One result per transactional id."""

    throttle_time_ms: int = fields.throttle_time_ms()
    transaction_states: list[TransactionState] = field(Array(TransactionState), doc="The results.")
