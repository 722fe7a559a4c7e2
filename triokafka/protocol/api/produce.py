"""Produce (API key 0): append record batches to partitions.

Versions 3–13; flexible from 9. v3: transactional id, record batches of format 2. v4: answers may say KafkaStorageError.
v5: log start offset in the answer. v7: zstd allowed. v8: errors of single records. v10: current leader and its address
when the leader moved (KIP-951). v11: TransactionAbortableError (KIP-890). v12: a transaction adds its partitions by
producing to them. v13: topic ids instead of names (KIP-516).

With ``acks`` 0 the broker sends no answer. Kafka advertises versions from 0 on, for the sake of an old librdkafka, and
refuses those below 3.
"""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int32, Int64, Records, String, Uuid
from triokafka.structs import Buffer


class PartitionProduceData(Struct):
    """The batches for one partition."""

    index: int = field(Int32, doc="The partition's number.")
    records: Buffer | None = field(
        Records,
        nullable="0+",
        doc="Record batches of format 2; exactly one for each partition.",
        errors=(
            "CorruptRecordError",
            "InvalidRecordError",
            "MessageSizeTooLargeError",
            "RecordListTooLargeError",
            "UnsupportedForMessageFormatError",
            "UnsupportedCompressionTypeError",
            "InvalidTimestampError",
            "OutOfOrderSequenceNumberError",
            "DuplicateSequenceNumberError",
            "InvalidProducerEpochError",
            "UnknownProducerIdError",
            "InvalidTxnStateError",
        ),
    )


class TopicProduceData(Struct):
    """The batches for one topic."""

    name: str = field(
        String,
        versions="0-12",
        ignorable=True,
        doc="The topic's name.",
        errors=("UnknownTopicOrPartitionError", "InvalidTopicError", "TopicAuthorizationFailedError"),
    )
    topic_id: UUID = field(Uuid, versions="13+", ignorable=True, doc="The topic's id.", errors=("UnknownTopicIdError",))
    partition_data: list[PartitionProduceData] = field(Array(PartitionProduceData), doc="The batches by partition.")


class ProduceRequest(Request["ProduceResponse"], api_key=0, versions="3-13", flexible="9+"):
    """Append batches to partitions of topics."""

    transactional_id: str | None = field(
        String,
        versions="3+",
        nullable="3+",
        default=None,
        doc="The transactional id of a transactional producer, else null.",
        errors=("TransactionalIdAuthorizationFailedError",),
    )
    acks: int = field(
        Int16,
        doc="How many replicas must have the records: 0 none and no answer, 1 the leader, -1 all in sync.",
        errors=("InvalidRequiredAcksError", "NotEnoughReplicasError", "NotEnoughReplicasAfterAppendError"),
    )
    timeout_ms: int = field(
        Int32,
        doc="How many milliseconds the broker may wait for the other replicas.",
        errors=("RequestTimedOutError",),
    )
    topic_data: list[TopicProduceData] = field(Array(TopicProduceData), doc="The batches by topic.")


class BatchIndexAndErrorMessage(Struct):
    """A record that made its whole batch fail."""

    batch_index: int = field(Int32, versions="8+", doc="The record's position in the batch.")
    batch_index_error_message: str | None = field(
        String,
        versions="8+",
        nullable="8+",
        default=None,
        doc="The error message of the record; null if there is only the error code.",
    )


class LeaderIdAndEpoch(Struct):
    """The current leader, as far as the broker knows; -1 if unknown."""

    leader_id: int = field(Int32, versions="10+", default=-1, doc="The leader's broker id; -1 for none.")
    leader_epoch: int = fields.leader_epoch(versions="10+")


class PartitionProduceResponse(Struct):
    """The outcome for one partition."""

    index: int = field(Int32, doc="The partition's number.")
    error_code: int = field(
        Int16,
        doc="The error code of the partition; 0 if the batch was appended.",
        errors=(
            "UnknownTopicOrPartitionError",
            "NotLeaderForPartitionError",
            "UnknownTopicIdError",
            "TopicAuthorizationFailedError",
            "TransactionalIdAuthorizationFailedError",
            "CorruptRecordError",
            "InvalidRecordError",
            "MessageSizeTooLargeError",
            "RecordListTooLargeError",
            "InvalidTimestampError",
            "InvalidRequiredAcksError",
            "NotEnoughReplicasError",
            "NotEnoughReplicasAfterAppendError",
            "RequestTimedOutError",
            "KafkaStorageError",
            "OutOfOrderSequenceNumberError",
            "DuplicateSequenceNumberError",
            "InvalidProducerEpochError",
            "UnknownProducerIdError",
            "InvalidTxnStateError",
            "TransactionAbortableError",
            "PolicyViolationError",
        ),
    )
    base_offset: int = field(Int64, doc="The offset that the first record got; -1 on an error.")
    log_append_time_ms: int = field(
        Int64,
        versions="2+",
        ignorable=True,
        default=-1,
        doc="The broker's time in milliseconds, if the topic is stamped on append, else -1.",
    )
    log_start_offset: int = field(
        Int64,
        versions="5+",
        ignorable=True,
        default=-1,
        doc="The first offset of the partition; -1 on an error.",
    )
    record_errors: list[BatchIndexAndErrorMessage] = field(
        Array(BatchIndexAndErrorMessage),
        versions="8+",
        ignorable=True,
        doc="The records that made the batch fail; empty when it was not about single records.",
    )
    error_message: str | None = fields.error_message(versions="8+", nullable="8+", ignorable=True, default=None)
    current_leader: LeaderIdAndEpoch = field(
        LeaderIdAndEpoch, versions="10+", tag=0, doc="The leader by now, when the request went to a former one."
    )


class TopicProduceResponse(Struct):
    """The outcomes for one topic."""

    name: str = field(String, versions="0-12", ignorable=True, doc="The topic's name.")
    topic_id: UUID = field(Uuid, versions="13+", ignorable=True, doc="The topic's id.")
    partition_responses: list[PartitionProduceResponse] = field(
        Array(PartitionProduceResponse),
        doc="The outcomes by partition.",
    )


class NodeEndpoint(Struct):
    """The address of a leader in the answer."""

    node_id: int = field(Int32, versions="10+", doc="The broker's id.")
    host: str = field(String, versions="10+", doc="The host to connect to.")
    port: int = field(Int32, versions="10+", doc="The port to connect to.")
    rack: str | None = fields.rack(versions="10+", nullable="10+")


class ProduceResponse(Response, api_key=0, versions="3-13", flexible="9+"):
    """The outcome per partition, in the order asked."""

    responses: list[TopicProduceResponse] = field(Array(TopicProduceResponse), doc="The outcomes by topic.")
    throttle_time_ms: int = fields.throttle_time_ms(versions="1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = field(
        Array(NodeEndpoint), versions="10+", tag=0, doc="Addresses of the leaders named as current."
    )
