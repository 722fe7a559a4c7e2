"""AddPartitionsToTxn (API key 24)."""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Int16, Int32, Int64, String


class AddPartitionsToTxnTopic(Struct):
    """One item of ``topics``."""

    name: str = field(String, doc="Name.")
    partitions: list[int] = field(Array(Int32), doc="Partitions.")


class AddPartitionsToTxnTransaction(Struct):
    """One item of ``transactions``."""

    transactional_id: str = field(String, versions="4+", doc="Transactional id.")
    producer_id: int = field(Int64, versions="4+", doc="Producer id.")
    producer_epoch: int = field(Int16, versions="4+", doc="Producer epoch.")
    verify_only: bool = field(Boolean, versions="4+", doc="Verify only.")
    topics: list[AddPartitionsToTxnTopic] = field(Array(AddPartitionsToTxnTopic), versions="4+", doc="Topics.")


class AddPartitionsToTxnRequest(Request["AddPartitionsToTxnResponse"], api_key=24, versions="0-5", flexible="3+"):
    """Ask."""

    transactions: list[AddPartitionsToTxnTransaction] = field(
        Array(AddPartitionsToTxnTransaction),
        versions="4+",
        doc="Transactions.",
    )
    v3_and_below_transactional_id: str = field(String, versions="0-3", doc="V3 and below transactional id.")
    v3_and_below_producer_id: int = field(Int64, versions="0-3", doc="V3 and below producer id.")
    v3_and_below_producer_epoch: int = field(Int16, versions="0-3", doc="V3 and below producer epoch.")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(
        Array(AddPartitionsToTxnTopic),
        versions="0-3",
        doc="V3 and below topics.",
    )


class AddPartitionsToTxnPartitionResult(Struct):
    """One item of ``results_by_partition``."""

    partition_index: int = field(Int32, doc="Partition index.")
    partition_error_code: int = field(Int16, doc="Partition error code.")


class AddPartitionsToTxnTopicResult(Struct):
    """One item of ``topic_results``."""

    name: str = field(String, doc="Name.")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(
        Array(AddPartitionsToTxnPartitionResult),
        doc="Results by partition.",
    )


class AddPartitionsToTxnResult(Struct):
    """One item of ``results_by_transaction``."""

    transactional_id: str = field(String, versions="4+", doc="Transactional id.")
    topic_results: list[AddPartitionsToTxnTopicResult] = field(
        Array(AddPartitionsToTxnTopicResult),
        versions="4+",
        doc="Topic results.",
    )


class AddPartitionsToTxnResponse(Response, api_key=24, versions="0-5", flexible="3+"):
    """The answer."""

    throttle_time_ms: int = field(Int32, doc="Throttle time ms.")
    error_code: int = field(Int16, versions="4+", ignorable=True, doc="Error code.")
    results_by_transaction: list[AddPartitionsToTxnResult] = field(
        Array(AddPartitionsToTxnResult),
        versions="4+",
        doc="Results by transaction.",
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(
        Array(AddPartitionsToTxnTopicResult),
        versions="0-3",
        doc="Results by topic v3 and below.",
    )
