"""TxnOffsetCommit (API key 28): store a group's positions as part of a transaction.

Versions 0–5; flexible from 3. v2: leader epoch. v3: membership of the committer, so that zombies are fenced (KIP-447).
v4: TransactionAbortableError. v5: the request itself registers the group with the transaction (KIP-890).
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int32, Int64, String


class TxnOffsetCommitRequestPartition(Struct):
    """The position in one partition."""

    partition_index: int = field(Int32, doc="The partition's number.")
    committed_offset: int = field(Int64, doc="The next offset to read.", errors=("InvalidCommitOffsetSizeError",))
    committed_leader_epoch: int = fields.committed_leader_epoch(versions="2+")
    committed_metadata: str | None = fields.committed_metadata(nullable="0+")


class TxnOffsetCommitRequestTopic(Struct):
    """The positions in one topic."""

    name: str = fields.topic_name()
    partitions: list[TxnOffsetCommitRequestPartition] = field(
        Array(TxnOffsetCommitRequestPartition),
        doc="The positions by partition.",
    )


class TxnOffsetCommitRequest(Request["TxnOffsetCommitResponse"], api_key=28, versions="0-5", flexible="3+"):
    """Store positions of a group in a transaction."""

    transactional_id: str = fields.transactional_id()
    group_id: str = fields.group_id()
    producer_id: int = field(Int64, doc="The producer's id.", errors=("InvalidProducerIdMappingError",))
    producer_epoch: int = fields.producer_epoch()
    generation_id: int = field(
        Int32,
        versions="3+",
        default=-1,
        doc="The member's generation; -1 for a committer that is not a member.",
        errors=("IllegalGenerationError",),
    )
    member_id: str = fields.committing_member_id(versions="3+")
    group_instance_id: str | None = fields.group_instance_id(versions="3+", nullable="3+")
    topics: list[TxnOffsetCommitRequestTopic] = field(Array(TxnOffsetCommitRequestTopic), doc="The positions by topic.")


class TxnOffsetCommitResponsePartition(Struct):
    """The outcome for one partition."""

    partition_index: int = field(Int32, doc="The partition's number.")
    error_code: int = field(
        Int16,
        doc="The error code of the partition; 0 if the offset was stored.",
        errors=(
            *fields.GROUP_ERRORS,
            "InvalidProducerEpochError",
            "InvalidProducerIdMappingError",
            "InvalidTxnStateError",
            "UnknownMemberIdError",
            "IllegalGenerationError",
            "FencedInstanceIdError",
            "OffsetMetadataTooLargeError",
            "UnknownTopicOrPartitionError",
            "TopicAuthorizationFailedError",
            "TransactionalIdAuthorizationFailedError",
            "TransactionAbortableError",
        ),
    )


class TxnOffsetCommitResponseTopic(Struct):
    """The outcomes for one topic."""

    name: str = field(String, doc="The topic's name.")
    partitions: list[TxnOffsetCommitResponsePartition] = field(
        Array(TxnOffsetCommitResponsePartition),
        doc="The outcomes by partition.",
    )


class TxnOffsetCommitResponse(Response, api_key=28, versions="0-5", flexible="3+"):
    """The outcome per partition."""

    throttle_time_ms: int = fields.throttle_time_ms()
    topics: list[TxnOffsetCommitResponseTopic] = field(
        Array(TxnOffsetCommitResponseTopic),
        doc="The outcomes by topic.",
    )
