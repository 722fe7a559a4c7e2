"""ListOffsets (API key 2)."""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int8, Int16, Int32, Int64, String


class ListOffsetsPartition(Struct):
    """One item of ``partitions``."""

    partition_index: int = field(Int32, doc="Partition index.")
    current_leader_epoch: int = field(Int32, versions="4+", ignorable=True, default=-1, doc="Current leader epoch.")
    timestamp: int = field(Int64, doc="Timestamp.")


class ListOffsetsTopic(Struct):
    """One item of ``topics``."""

    name: str = field(String, doc="Name.")
    partitions: list[ListOffsetsPartition] = field(Array(ListOffsetsPartition), doc="Partitions.")


class ListOffsetsRequest(Request["ListOffsetsResponse"], api_key=2, versions="1-11", flexible="6+"):
    """Ask."""

    replica_id: int = field(Int32, doc="Replica id.")
    isolation_level: int = field(Int8, versions="2+", doc="Isolation level.")
    topics: list[ListOffsetsTopic] = field(Array(ListOffsetsTopic), doc="Topics.")
    timeout_ms: int = field(Int32, versions="10+", ignorable=True, doc="Timeout ms.")


class ListOffsetsPartitionResponse(Struct):
    """One item of ``partitions``."""

    partition_index: int = field(Int32, doc="Partition index.")
    error_code: int = field(Int16, doc="Error code.")
    timestamp: int = field(Int64, versions="1+", default=-1, doc="Timestamp.")
    offset: int = field(Int64, versions="1+", default=-1, doc="Offset.")
    leader_epoch: int = field(Int32, versions="4+", default=-1, doc="Leader epoch.")


class ListOffsetsTopicResponse(Struct):
    """One item of ``topics``."""

    name: str = field(String, doc="Name.")
    partitions: list[ListOffsetsPartitionResponse] = field(Array(ListOffsetsPartitionResponse), doc="Partitions.")


class ListOffsetsResponse(Response, api_key=2, versions="1-11", flexible="6+"):
    """The answer."""

    throttle_time_ms: int = field(Int32, versions="2+", ignorable=True, doc="Throttle time ms.")
    topics: list[ListOffsetsTopicResponse] = field(Array(ListOffsetsTopicResponse), doc="Topics.")
