"""OffsetForLeaderEpoch (API key 23)."""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int32, Int64, String


class OffsetForLeaderPartition(Struct):
    """One item of ``partitions``."""

    partition: int = field(Int32, doc="Partition.")
    current_leader_epoch: int = field(Int32, versions="2+", ignorable=True, default=-1, doc="Current leader epoch.")
    leader_epoch: int = field(Int32, doc="Leader epoch.")


class OffsetForLeaderTopic(Struct):
    """One item of ``topics``."""

    topic: str = field(String, doc="Topic.")
    partitions: list[OffsetForLeaderPartition] = field(Array(OffsetForLeaderPartition), doc="Partitions.")


class OffsetForLeaderEpochRequest(Request["OffsetForLeaderEpochResponse"], api_key=23, versions="2-4", flexible="4+"):
    """Ask."""

    replica_id: int = field(Int32, versions="3+", ignorable=True, default=-2, doc="Replica id.")
    topics: list[OffsetForLeaderTopic] = field(Array(OffsetForLeaderTopic), doc="Topics.")


class EpochEndOffset(Struct):
    """One item of ``partitions``."""

    error_code: int = field(Int16, doc="Error code.")
    partition: int = field(Int32, doc="Partition.")
    leader_epoch: int = field(Int32, versions="1+", ignorable=True, default=-1, doc="Leader epoch.")
    end_offset: int = field(Int64, default=-1, doc="End offset.")


class OffsetForLeaderTopicResult(Struct):
    """One item of ``topics``."""

    topic: str = field(String, doc="Topic.")
    partitions: list[EpochEndOffset] = field(Array(EpochEndOffset), doc="Partitions.")


class OffsetForLeaderEpochResponse(Response, api_key=23, versions="2-4", flexible="4+"):
    """The answer."""

    throttle_time_ms: int = field(Int32, versions="2+", ignorable=True, doc="Throttle time ms.")
    topics: list[OffsetForLeaderTopicResult] = field(Array(OffsetForLeaderTopicResult), doc="Topics.")
