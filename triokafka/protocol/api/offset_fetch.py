"""OffsetFetch (API key 9): read a group's stored positions.

Versions 1–10; flexible from 6. v2: null topics ask for all; error of the whole answer. v3: throttle time. v5: leader
epoch. v7: can wait until transactions have decided. v8: several groups in one request. v9: members of the consumer
protocol (KIP-848). v10: topic ids instead of names.
"""

from __future__ import annotations

from functools import partial
from uuid import UUID

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Int16, Int32, Int64, String, Uuid

_partition_error_code = partial(
    field,
    Int16,
    doc="The error code of the partition; 0 for success.",
    errors=(
        "UnknownTopicOrPartitionError",
        "UnknownTopicIdError",
        "TopicAuthorizationFailedError",
        "UnstableOffsetCommitError",
    ),
)


class OffsetFetchRequestTopic(Struct):
    """Partitions of one topic (versions below 8)."""

    name: str = fields.topic_name(versions="0-7")
    partition_indexes: list[int] = field(Array(Int32), versions="0-7", doc="The partitions' numbers.")


class OffsetFetchRequestTopics(Struct):
    """Partitions of one topic."""

    name: str = fields.topic_name(versions="8-9", ignorable=True)
    topic_id: UUID = field(Uuid, versions="10+", ignorable=True, doc="The topic's id.", errors=("UnknownTopicIdError",))
    partition_indexes: list[int] = field(Array(Int32), versions="8+", doc="The partitions' numbers.")


class OffsetFetchRequestGroup(Struct):
    """A group and the topics whose committed offsets to fetch."""

    group_id: str = fields.group_id(versions="8+")
    member_id: str | None = field(
        String,
        versions="9+",
        nullable="9+",
        ignorable=True,
        default=None,
        doc="The member that asks, under the consumer protocol; null when no member asks.",
        errors=("UnknownMemberIdError",),
    )
    member_epoch: int = field(
        Int32,
        versions="9+",
        ignorable=True,
        default=-1,
        doc="The member's epoch under the consumer protocol; -1 when no member asks.",
        errors=("StaleMemberEpochError",),
    )
    topics: list[OffsetFetchRequestTopics] | None = field(
        Array(OffsetFetchRequestTopics),
        versions="8+",
        nullable="8+",
        doc="The partitions by topic; null for all that the group has a position in.",
    )


class OffsetFetchRequest(Request["OffsetFetchResponse"], api_key=9, versions="1-10", flexible="6+"):
    """Read positions; versions below 8 ask for one group."""

    group_id: str = fields.group_id(versions="0-7")
    topics: list[OffsetFetchRequestTopic] | None = field(
        Array(OffsetFetchRequestTopic),
        versions="0-7",
        nullable="2-7",
        doc="The partitions by topic; null for all that the group has a position in.",
    )
    groups: list[OffsetFetchRequestGroup] = field(
        Array(OffsetFetchRequestGroup),
        versions="8+",
        doc="The committed offsets to fetch, by group.",
    )
    require_stable: bool = field(
        Boolean,
        versions="7+",
        doc="Whether to wait for open transactions with pending offsets (stable offsets).",
        errors=("UnstableOffsetCommitError",),
    )


class OffsetFetchResponsePartition(Struct):
    """The position in one partition (versions below 8)."""

    partition_index: int = field(Int32, versions="0-7", doc="The partition's number.")
    committed_offset: int = field(Int64, versions="0-7", doc="The next offset to read; -1 when nothing is stored.")
    committed_leader_epoch: int = fields.committed_leader_epoch(versions="5-7")
    metadata: str | None = field(String, versions="0-7", nullable="0-7", doc="The committer's own text.")
    error_code: int = _partition_error_code(versions="0-7")


class OffsetFetchResponseTopic(Struct):
    """Positions in one topic (versions below 8)."""

    name: str = field(String, versions="0-7", doc="The topic's name.")
    partitions: list[OffsetFetchResponsePartition] = field(
        Array(OffsetFetchResponsePartition),
        versions="0-7",
        doc="The positions by partition.",
    )


class OffsetFetchResponsePartitions(Struct):
    """The position in one partition."""

    partition_index: int = field(Int32, versions="8+", doc="The partition's number.")
    committed_offset: int = field(Int64, versions="8+", doc="The next offset to read; -1 when nothing is stored.")
    committed_leader_epoch: int = fields.committed_leader_epoch(versions="8+")
    metadata: str | None = field(String, versions="8+", nullable="8+", doc="The committer's own text.")
    error_code: int = _partition_error_code(versions="8+")


class OffsetFetchResponseTopics(Struct):
    """Positions in one topic."""

    name: str = field(String, versions="8-9", ignorable=True, doc="The topic's name.")
    topic_id: UUID = field(Uuid, versions="10+", ignorable=True, doc="The topic's id.")
    partitions: list[OffsetFetchResponsePartitions] = field(
        Array(OffsetFetchResponsePartitions),
        versions="8+",
        doc="The positions by partition.",
    )


class OffsetFetchResponseGroup(Struct):
    """The positions of one group."""

    group_id: str = field(String, versions="8+", doc="The group's id.")
    topics: list[OffsetFetchResponseTopics] = field(
        Array(OffsetFetchResponseTopics),
        versions="8+",
        doc="The positions by topic.",
    )
    error_code: int = field(
        Int16,
        versions="8+",
        doc="The error code of the whole group; 0 means success.",
        errors=(*fields.GROUP_ERRORS, "GroupIdNotFoundError", "UnknownMemberIdError", "StaleMemberEpochError"),
    )


class OffsetFetchResponse(Response, api_key=9, versions="1-10", flexible="6+"):
    """The positions; versions below 8 hold one group."""

    throttle_time_ms: int = fields.throttle_time_ms(versions="3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field(
        Array(OffsetFetchResponseTopic),
        versions="0-7",
        doc="The positions by topic.",
    )
    error_code: int = field(
        Int16,
        versions="2-7",
        ignorable=True,
        doc="The error code of the whole response; 0 means success.",
        errors=(*fields.GROUP_ERRORS, "GroupIdNotFoundError"),
    )
    groups: list[OffsetFetchResponseGroup] = field(
        Array(OffsetFetchResponseGroup),
        versions="8+",
        doc="The positions by group.",
    )
