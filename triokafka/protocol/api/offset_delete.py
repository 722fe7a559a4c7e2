"""OffsetDelete (API key 47)."""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int32, String


class OffsetDeleteRequestPartition(Struct):
    """One item of ``partitions``."""

    partition_index: int = field(Int32, doc="Partition index.")


class OffsetDeleteRequestTopic(Struct):
    """One item of ``topics``."""

    name: str = field(String, doc="Name.")
    partitions: list[OffsetDeleteRequestPartition] = field(Array(OffsetDeleteRequestPartition), doc="Partitions.")


class OffsetDeleteRequest(Request["OffsetDeleteResponse"], api_key=47, versions="0"):
    """Ask."""

    group_id: str = field(String, doc="Group id.")
    topics: list[OffsetDeleteRequestTopic] = field(Array(OffsetDeleteRequestTopic), doc="Topics.")


class OffsetDeleteResponsePartition(Struct):
    """One item of ``partitions``."""

    partition_index: int = field(Int32, doc="Partition index.")
    error_code: int = field(Int16, doc="Error code.")


class OffsetDeleteResponseTopic(Struct):
    """One item of ``topics``."""

    name: str = field(String, doc="Name.")
    partitions: list[OffsetDeleteResponsePartition] = field(Array(OffsetDeleteResponsePartition), doc="Partitions.")


class OffsetDeleteResponse(Response, api_key=47, versions="0"):
    """The answer."""

    error_code: int = field(Int16, doc="Error code.")
    throttle_time_ms: int = field(Int32, ignorable=True, doc="Throttle time ms.")
    topics: list[OffsetDeleteResponseTopic] = field(Array(OffsetDeleteResponseTopic), doc="Topics.")
