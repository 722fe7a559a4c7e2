"""AddPartitionsToTxn (API key 24): register partitions with a transaction before writing to them.

Versions 0–5; flexible from 3. v0–3 are for clients, one transaction each; from v4 on for brokers, which check or add
several transactions at once. v2: ProducerFencedError. v5: TransactionAbortableError (KIP-890).
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Int16, Int32, Int64, String


class AddPartitionsToTxnTopic(Struct):
    """Partitions of one topic."""

    name: str = fields.topic_name()
    partitions: list[int] = field(Array(Int32), doc="The partitions' numbers.")


class AddPartitionsToTxnTransaction(Struct):
    """A transaction and its partitions."""

    transactional_id: str = fields.transactional_id(versions="4+")
    producer_id: int = field(Int64, versions="4+", doc="The producer's id.", errors=("InvalidProducerIdMappingError",))
    producer_epoch: int = fields.producer_epoch(versions="4+")
    verify_only: bool = field(
        Boolean,
        versions="4+",
        doc="Whether to check only that the partitions are registered.",
        errors=("TransactionAbortableError",),
    )
    topics: list[AddPartitionsToTxnTopic] = field(
        Array(AddPartitionsToTxnTopic),
        versions="4+",
        doc="The partitions by topic.",
    )


class AddPartitionsToTxnRequest(Request["AddPartitionsToTxnResponse"], api_key=24, versions="0-5", flexible="3+"):
    """Register partitions with a transaction."""

    transactions: list[AddPartitionsToTxnTransaction] = field(
        Array(AddPartitionsToTxnTransaction),
        versions="4+",
        doc="The transactions.",
    )
    v3_and_below_transactional_id: str = fields.transactional_id(versions="0-3")
    v3_and_below_producer_id: int = field(
        Int64,
        versions="0-3",
        doc="The producer's id.",
        errors=("InvalidProducerIdMappingError",),
    )
    v3_and_below_producer_epoch: int = field(
        Int16,
        versions="0-3",
        doc="The producer's epoch.",
        errors=("InvalidProducerEpochError", "ProducerFencedError"),
    )
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(
        Array(AddPartitionsToTxnTopic),
        versions="0-3",
        doc="The partitions by topic.",
    )


class AddPartitionsToTxnPartitionResult(Struct):
    """The outcome for one partition."""

    partition_index: int = field(Int32, doc="The partition's number.")
    partition_error_code: int = field(
        Int16,
        doc="The error code of the partition; 0 if it is registered.",
        errors=(
            *fields.TRANSACTION_ERRORS,
            "UnknownTopicOrPartitionError",
            "TopicAuthorizationFailedError",
            "TransactionalIdAuthorizationFailedError",
            "OperationNotAttemptedError",
            "TransactionAbortableError",
        ),
    )


class AddPartitionsToTxnTopicResult(Struct):
    """The outcomes for one topic."""

    name: str = field(String, doc="The topic's name.")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(
        Array(AddPartitionsToTxnPartitionResult),
        doc="The outcomes by partition.",
    )


class AddPartitionsToTxnResult(Struct):
    """The outcomes for one transaction."""

    transactional_id: str = field(String, versions="4+", doc="The transactional id.")
    topic_results: list[AddPartitionsToTxnTopicResult] = field(
        Array(AddPartitionsToTxnTopicResult),
        versions="4+",
        doc="The outcomes by topic.",
    )


class AddPartitionsToTxnResponse(Response, api_key=24, versions="0-5", flexible="3+"):
    """The outcome per partition."""

    throttle_time_ms: int = fields.throttle_time_ms()
    error_code: int = field(
        Int16,
        versions="4+",
        ignorable=True,
        doc="The error code of the whole response; 0 means success.",
        errors=("ClusterAuthorizationFailedError",),
    )
    results_by_transaction: list[AddPartitionsToTxnResult] = field(
        Array(AddPartitionsToTxnResult),
        versions="4+",
        doc="The outcomes by transaction.",
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(
        Array(AddPartitionsToTxnTopicResult),
        versions="0-3",
        doc="The outcomes by topic.",
    )
