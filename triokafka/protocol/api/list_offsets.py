"""ListOffsets (API key 2): find offsets by time, or the first or last offset of a partition.

Versions 1–11; flexible from 6. v2: isolation level, throttle time. v4: leader epochs. v7: offset of the largest
timestamp (-3, KIP-734). v8: first local offset (-4, KIP-405). v9: last tiered offset (-5, KIP-1005). v10: timeout for
looking into remote storage (KIP-1075). v11: first offset not yet uploaded (-6, KIP-1023).
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int32, Int64, String


class ListOffsetsPartition(Struct):
    """A partition and the timestamp to look up."""

    partition_index: int = field(Int32, doc="The partition's number.")
    current_leader_epoch: int = fields.current_leader_epoch(versions="4+")
    timestamp: int = field(
        Int64,
        doc="The time in milliseconds, or -1 for the end, -2 for the start, -3 for the largest timestamp, -4 "
        "for the first local offset, -5 for the last tiered one, -6 for the first not yet uploaded.",
        errors=("UnsupportedVersionError", "UnsupportedForMessageFormatError"),
    )


class ListOffsetsTopic(Struct):
    """The partitions of one topic."""

    name: str = fields.topic_name()
    partitions: list[ListOffsetsPartition] = field(
        Array(ListOffsetsPartition), doc="The offsets to look up, by partition."
    )


class ListOffsetsRequest(Request["ListOffsetsResponse"], api_key=2, versions="1-11", flexible="6+"):
    """Look up offsets by timestamp."""

    replica_id: int = field(Int32, doc="The follower's broker id; -1 for a consumer.")
    isolation_level: int = fields.isolation_level(versions="2+")
    topics: list[ListOffsetsTopic] = field(Array(ListOffsetsTopic), doc="The offsets to look up, by topic.")
    timeout_ms: int = field(
        Int32,
        versions="10+",
        ignorable=True,
        doc="How many milliseconds a look into remote storage may take.",
        errors=("RequestTimedOutError",),
    )


class ListOffsetsPartitionResponse(Struct):
    """The offset of one partition."""

    partition_index: int = field(Int32, doc="The partition's number.")
    error_code: int = field(
        Int16,
        doc="The error code of the partition; 0 for success.",
        errors=(
            "UnknownTopicOrPartitionError",
            "NotLeaderForPartitionError",
            "LeaderNotAvailableError",
            "FencedLeaderEpochError",
            "UnknownLeaderEpochError",
            "OffsetNotAvailableError",
            "UnsupportedForMessageFormatError",
            "UnsupportedVersionError",
            "TopicAuthorizationFailedError",
            "KafkaStorageError",
            "ReplicaNotAvailableError",
            "RequestTimedOutError",
        ),
    )
    timestamp: int = field(
        Int64,
        versions="1+",
        default=-1,
        doc="The timestamp of the record; -1 if there is none, or if a special offset was requested.",
    )
    offset: int = field(
        Int64,
        versions="1+",
        default=-1,
        doc="The offset; -1 if no record is at or after the requested time.",
    )
    leader_epoch: int = field(
        Int32,
        versions="4+",
        default=-1,
        doc="The leader epoch of the record found; -1 when unknown.",
    )


class ListOffsetsTopicResponse(Struct):
    """The offsets of one topic."""

    name: str = field(String, doc="The topic's name.")
    partitions: list[ListOffsetsPartitionResponse] = field(
        Array(ListOffsetsPartitionResponse),
        doc="The offsets by partition.",
    )


class ListOffsetsResponse(Response, api_key=2, versions="1-11", flexible="6+"):
    """The offsets found."""

    throttle_time_ms: int = fields.throttle_time_ms(versions="2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = field(Array(ListOffsetsTopicResponse), doc="The offsets by topic.")
