"""OffsetCommit (API key 8)."""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int32, Int64, String, Uuid


class OffsetCommitRequestPartition(Struct):
    """One item of ``partitions``."""

    partition_index: int = field(Int32, doc="Partition index.")
    committed_offset: int = field(Int64, doc="Committed offset.")
    committed_leader_epoch: int = field(Int32, versions="6+", ignorable=True, default=-1, doc="Committed leader epoch.")
    committed_metadata: str | None = field(String, nullable="0+", doc="Committed metadata.")


class OffsetCommitRequestTopic(Struct):
    """One item of ``topics``."""

    name: str = field(String, versions="0-9", ignorable=True, doc="Name.")
    topic_id: UUID = field(Uuid, versions="10+", ignorable=True, doc="Topic id.")
    partitions: list[OffsetCommitRequestPartition] = field(Array(OffsetCommitRequestPartition), doc="Partitions.")


class OffsetCommitRequest(Request["OffsetCommitResponse"], api_key=8, versions="2-10", flexible="8+"):
    """Ask."""

    group_id: str = field(String, doc="Group id.")
    generation_id_or_member_epoch: int = field(
        Int32,
        versions="1+",
        ignorable=True,
        default=-1,
        doc="Generation id or member epoch.",
    )
    member_id: str = field(String, versions="1+", ignorable=True, doc="Member id.")
    group_instance_id: str | None = field(String, versions="7+", nullable="7+", default=None, doc="Group instance id.")
    retention_time_ms: int = field(Int64, versions="2-4", ignorable=True, default=-1, doc="Retention time ms.")
    topics: list[OffsetCommitRequestTopic] = field(Array(OffsetCommitRequestTopic), doc="Topics.")


class OffsetCommitResponsePartition(Struct):
    """One item of ``partitions``."""

    partition_index: int = field(Int32, doc="Partition index.")
    error_code: int = field(Int16, doc="Error code.")


class OffsetCommitResponseTopic(Struct):
    """One item of ``topics``."""

    name: str = field(String, versions="0-9", ignorable=True, doc="Name.")
    topic_id: UUID = field(Uuid, versions="10+", ignorable=True, doc="Topic id.")
    partitions: list[OffsetCommitResponsePartition] = field(Array(OffsetCommitResponsePartition), doc="Partitions.")


class OffsetCommitResponse(Response, api_key=8, versions="2-10", flexible="8+"):
    """The answer."""

    throttle_time_ms: int = field(Int32, versions="3+", ignorable=True, doc="Throttle time ms.")
    topics: list[OffsetCommitResponseTopic] = field(Array(OffsetCommitResponseTopic), doc="Topics.")
