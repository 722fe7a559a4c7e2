"""OffsetForLeaderEpoch (API key 23): where a leader epoch ended, to detect truncated logs.

Versions 2–4; flexible from 4. v2: current leader epoch for fencing. v3: replica id.
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int32, Int64, String


class OffsetForLeaderPartition(Struct):
    """The epoch in question of one partition."""

    partition: int = field(Int32, doc="The partition's number.")
    current_leader_epoch: int = fields.current_leader_epoch(versions="2+")
    leader_epoch: int = field(Int32, doc="The leader epoch whose end offset is requested.")


class OffsetForLeaderTopic(Struct):
    """Partitions of one topic."""

    topic: str = fields.topic_name()
    partitions: list[OffsetForLeaderPartition] = field(Array(OffsetForLeaderPartition), doc="The epochs by partition.")


class OffsetForLeaderEpochRequest(Request["OffsetForLeaderEpochResponse"], api_key=23, versions="2-4", flexible="4+"):
    """Ask where leader epochs ended."""

    replica_id: int = field(
        Int32,
        versions="3+",
        ignorable=True,
        default=-2,
        doc="The follower's broker id; -1 for a consumer, -2 for a debugger, who may see past the high watermark.",
    )
    topics: list[OffsetForLeaderTopic] = field(Array(OffsetForLeaderTopic), doc="The epochs by topic.")


class EpochEndOffset(Struct):
    """The end of the epoch in one partition."""

    error_code: int = field(
        Int16,
        doc="The error code of the partition; 0 for success.",
        errors=(
            "UnknownTopicOrPartitionError",
            "NotLeaderForPartitionError",
            "FencedLeaderEpochError",
            "UnknownLeaderEpochError",
            "TopicAuthorizationFailedError",
            "KafkaStorageError",
        ),
    )
    partition: int = field(Int32, doc="The partition's number.")
    leader_epoch: int = field(
        Int32,
        versions="1+",
        ignorable=True,
        default=-1,
        doc="The leader's greatest epoch up to the requested one; -1 for none.",
    )
    end_offset: int = field(Int64, default=-1, doc="The offset after the last record of that epoch; -1 for none.")


class OffsetForLeaderTopicResult(Struct):
    """The ends in one topic."""

    topic: str = field(String, doc="The topic's name.")
    partitions: list[EpochEndOffset] = field(Array(EpochEndOffset), doc="The ends by partition.")


class OffsetForLeaderEpochResponse(Response, api_key=23, versions="2-4", flexible="4+"):
    """The ends of the epochs."""

    throttle_time_ms: int = fields.throttle_time_ms(versions="2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = field(Array(OffsetForLeaderTopicResult), doc="The ends by topic.")
