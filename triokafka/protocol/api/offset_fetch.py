"""OffsetFetch (API key 9)."""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Int16, Int32, Int64, String, Uuid


class OffsetFetchRequestTopic(Struct):
    """One item of ``topics``."""

    name: str = field(String, versions="0-7", doc="Name.")
    partition_indexes: list[int] = field(Array(Int32), versions="0-7", doc="Partition indexes.")


class OffsetFetchRequestTopics(Struct):
    """One item of ``topics``."""

    name: str = field(String, versions="8-9", ignorable=True, doc="Name.")
    topic_id: UUID = field(Uuid, versions="10+", ignorable=True, doc="Topic id.")
    partition_indexes: list[int] = field(Array(Int32), versions="8+", doc="Partition indexes.")


class OffsetFetchRequestGroup(Struct):
    """One item of ``groups``."""

    group_id: str = field(String, versions="8+", doc="Group id.")
    member_id: str | None = field(String, versions="9+", nullable="9+", ignorable=True, default=None, doc="Member id.")
    member_epoch: int = field(Int32, versions="9+", ignorable=True, default=-1, doc="Member epoch.")
    topics: list[OffsetFetchRequestTopics] | None = field(
        Array(OffsetFetchRequestTopics),
        versions="8+",
        nullable="8+",
        doc="Topics.",
    )


class OffsetFetchRequest(Request["OffsetFetchResponse"], api_key=9, versions="1-10", flexible="6+"):
    """Ask."""

    group_id: str = field(String, versions="0-7", doc="Group id.")
    topics: list[OffsetFetchRequestTopic] | None = field(
        Array(OffsetFetchRequestTopic),
        versions="0-7",
        nullable="2-7",
        doc="Topics.",
    )
    groups: list[OffsetFetchRequestGroup] = field(Array(OffsetFetchRequestGroup), versions="8+", doc="Groups.")
    require_stable: bool = field(Boolean, versions="7+", doc="Require stable.")


class OffsetFetchResponsePartition(Struct):
    """One item of ``partitions``."""

    partition_index: int = field(Int32, versions="0-7", doc="Partition index.")
    committed_offset: int = field(Int64, versions="0-7", doc="Committed offset.")
    committed_leader_epoch: int = field(
        Int32,
        versions="5-7",
        ignorable=True,
        default=-1,
        doc="Committed leader epoch.",
    )
    metadata: str | None = field(String, versions="0-7", nullable="0-7", doc="Metadata.")
    error_code: int = field(Int16, versions="0-7", doc="Error code.")


class OffsetFetchResponseTopic(Struct):
    """One item of ``topics``."""

    name: str = field(String, versions="0-7", doc="Name.")
    partitions: list[OffsetFetchResponsePartition] = field(
        Array(OffsetFetchResponsePartition),
        versions="0-7",
        doc="Partitions.",
    )


class OffsetFetchResponsePartitions(Struct):
    """One item of ``partitions``."""

    partition_index: int = field(Int32, versions="8+", doc="Partition index.")
    committed_offset: int = field(Int64, versions="8+", doc="Committed offset.")
    committed_leader_epoch: int = field(Int32, versions="8+", ignorable=True, default=-1, doc="Committed leader epoch.")
    metadata: str | None = field(String, versions="8+", nullable="8+", doc="Metadata.")
    error_code: int = field(Int16, versions="8+", doc="Error code.")


class OffsetFetchResponseTopics(Struct):
    """One item of ``topics``."""

    name: str = field(String, versions="8-9", ignorable=True, doc="Name.")
    topic_id: UUID = field(Uuid, versions="10+", ignorable=True, doc="Topic id.")
    partitions: list[OffsetFetchResponsePartitions] = field(
        Array(OffsetFetchResponsePartitions),
        versions="8+",
        doc="Partitions.",
    )


class OffsetFetchResponseGroup(Struct):
    """One item of ``groups``."""

    group_id: str = field(String, versions="8+", doc="Group id.")
    topics: list[OffsetFetchResponseTopics] = field(Array(OffsetFetchResponseTopics), versions="8+", doc="Topics.")
    error_code: int = field(Int16, versions="8+", doc="Error code.")


class OffsetFetchResponse(Response, api_key=9, versions="1-10", flexible="6+"):
    """The answer."""

    throttle_time_ms: int = field(Int32, versions="3+", ignorable=True, doc="Throttle time ms.")
    topics: list[OffsetFetchResponseTopic] = field(Array(OffsetFetchResponseTopic), versions="0-7", doc="Topics.")
    error_code: int = field(Int16, versions="2-7", ignorable=True, doc="Error code.")
    groups: list[OffsetFetchResponseGroup] = field(Array(OffsetFetchResponseGroup), versions="8+", doc="Groups.")
