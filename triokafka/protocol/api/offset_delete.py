"""OffsetDelete (API key 47): delete a group's positions in single partitions (KIP-496).

Version 0; never flexible.
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int32, String


class OffsetDeleteRequestPartition(Struct):
    """A partition."""

    partition_index: int = field(Int32, doc="The partition's number.")


class OffsetDeleteRequestTopic(Struct):
    """Partitions of one topic."""

    name: str = fields.topic_name()
    partitions: list[OffsetDeleteRequestPartition] = field(Array(OffsetDeleteRequestPartition), doc="The partitions.")


class OffsetDeleteRequest(Request["OffsetDeleteResponse"], api_key=47, versions="0"):
    """Delete positions of a group."""

    group_id: str = fields.group_id()
    topics: list[OffsetDeleteRequestTopic] = field(Array(OffsetDeleteRequestTopic), doc="The partitions by topic.")


class OffsetDeleteResponsePartition(Struct):
    """The outcome for one partition."""

    partition_index: int = field(Int32, doc="The partition's number.")
    error_code: int = field(
        Int16,
        doc="The error code of the partition; 0 if the offset was deleted.",
        errors=("UnknownTopicOrPartitionError", "TopicAuthorizationFailedError", "GroupSubscribedToTopicError"),
    )


class OffsetDeleteResponseTopic(Struct):
    """The outcomes for one topic."""

    name: str = field(String, doc="The topic's name.")
    partitions: list[OffsetDeleteResponsePartition] = field(
        Array(OffsetDeleteResponsePartition),
        doc="The outcomes by partition.",
    )


class OffsetDeleteResponse(Response, api_key=47, versions="0"):
    """The outcome per partition."""

    error_code: int = field(
        Int16,
        doc="The error code of the whole request; 0 means success.",
        errors=(*fields.GROUP_ERRORS, "NonEmptyGroupError", "GroupIdNotFoundError"),
    )
    throttle_time_ms: int = fields.throttle_time_ms(ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = field(Array(OffsetDeleteResponseTopic), doc="The outcomes by topic.")
