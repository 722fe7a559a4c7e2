"""OffsetCommit (API key 8): store a group's positions.

Versions 2–10; flexible from 8. v2–4: retention time. v3: throttle time. v6: leader epoch of the position. v7: static
members (KIP-345). v9: members of the consumer protocol (KIP-848). v10: topic ids instead of names.
"""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int32, Int64, String, Uuid


class OffsetCommitRequestPartition(Struct):
    """The position in one partition."""

    partition_index: int = field(Int32, doc="The partition's number.")
    committed_offset: int = field(Int64, doc="The next offset to read.", errors=("InvalidCommitOffsetSizeError",))
    committed_leader_epoch: int = fields.committed_leader_epoch(versions="6+")
    committed_metadata: str | None = fields.committed_metadata(nullable="0+")


class OffsetCommitRequestTopic(Struct):
    """The positions in one topic."""

    name: str = fields.topic_name(versions="0-9", ignorable=True)
    topic_id: UUID = field(Uuid, versions="10+", ignorable=True, doc="The topic's id.", errors=("UnknownTopicIdError",))
    partitions: list[OffsetCommitRequestPartition] = field(
        Array(OffsetCommitRequestPartition),
        doc="The positions by partition.",
    )


class OffsetCommitRequest(Request["OffsetCommitResponse"], api_key=8, versions="2-10", flexible="8+"):
    """Store positions of a group."""

    group_id: str = fields.group_id()
    generation_id_or_member_epoch: int = field(
        Int32,
        versions="1+",
        ignorable=True,
        default=-1,
        doc="The member's generation, or its epoch under the consumer protocol; -1 without a membership.",
        errors=("IllegalGenerationError", "StaleMemberEpochError", "FencedMemberEpochError"),
    )
    member_id: str = fields.committing_member_id(versions="1+", ignorable=True)
    group_instance_id: str | None = fields.group_instance_id(versions="7+", nullable="7+")
    retention_time_ms: int = field(
        Int64,
        versions="2-4",
        ignorable=True,
        default=-1,
        doc="How many milliseconds to keep the position; -1 for the broker's default.",
    )
    topics: list[OffsetCommitRequestTopic] = field(Array(OffsetCommitRequestTopic), doc="The positions by topic.")


class OffsetCommitResponsePartition(Struct):
    """The outcome for one partition."""

    partition_index: int = field(Int32, doc="The partition's number.")
    error_code: int = field(
        Int16,
        doc="The error code of the partition; 0 if the offset was stored.",
        errors=(
            *fields.GROUP_ERRORS,
            "GroupIdNotFoundError",
            "UnknownMemberIdError",
            "IllegalGenerationError",
            "RebalanceInProgressError",
            "FencedInstanceIdError",
            "StaleMemberEpochError",
            "OffsetMetadataTooLargeError",
            "InvalidCommitOffsetSizeError",
            "UnknownTopicOrPartitionError",
            "UnknownTopicIdError",
            "TopicAuthorizationFailedError",
        ),
    )


class OffsetCommitResponseTopic(Struct):
    """The outcomes for one topic."""

    name: str = field(String, versions="0-9", ignorable=True, doc="The topic's name.")
    topic_id: UUID = field(Uuid, versions="10+", ignorable=True, doc="The topic's id.")
    partitions: list[OffsetCommitResponsePartition] = field(
        Array(OffsetCommitResponsePartition),
        doc="The outcomes by partition.",
    )


class OffsetCommitResponse(Response, api_key=8, versions="2-10", flexible="8+"):
    """The outcome per partition."""

    throttle_time_ms: int = fields.throttle_time_ms(versions="3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = field(Array(OffsetCommitResponseTopic), doc="The outcomes by topic.")
