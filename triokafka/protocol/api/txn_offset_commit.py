"""TxnOffsetCommit (API key 28)."""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int32, Int64, String


class TxnOffsetCommitRequestPartition(Struct):
    """One item of ``partitions``."""

    partition_index: int = field(Int32, doc="Partition index.")
    committed_offset: int = field(Int64, doc="Committed offset.")
    committed_leader_epoch: int = field(Int32, versions="2+", ignorable=True, default=-1, doc="Committed leader epoch.")
    committed_metadata: str | None = field(String, nullable="0+", doc="Committed metadata.")


class TxnOffsetCommitRequestTopic(Struct):
    """One item of ``topics``."""

    name: str = field(String, doc="Name.")
    partitions: list[TxnOffsetCommitRequestPartition] = field(Array(TxnOffsetCommitRequestPartition), doc="Partitions.")


class TxnOffsetCommitRequest(Request["TxnOffsetCommitResponse"], api_key=28, versions="0-5", flexible="3+"):
    """Ask."""

    transactional_id: str = field(String, doc="Transactional id.")
    group_id: str = field(String, doc="Group id.")
    producer_id: int = field(Int64, doc="Producer id.")
    producer_epoch: int = field(Int16, doc="Producer epoch.")
    generation_id: int = field(Int32, versions="3+", default=-1, doc="Generation id.")
    member_id: str = field(String, versions="3+", doc="Member id.")
    group_instance_id: str | None = field(String, versions="3+", nullable="3+", default=None, doc="Group instance id.")
    topics: list[TxnOffsetCommitRequestTopic] = field(Array(TxnOffsetCommitRequestTopic), doc="Topics.")


class TxnOffsetCommitResponsePartition(Struct):
    """One item of ``partitions``."""

    partition_index: int = field(Int32, doc="Partition index.")
    error_code: int = field(Int16, doc="Error code.")


class TxnOffsetCommitResponseTopic(Struct):
    """One item of ``topics``."""

    name: str = field(String, doc="Name.")
    partitions: list[TxnOffsetCommitResponsePartition] = field(
        Array(TxnOffsetCommitResponsePartition),
        doc="Partitions.",
    )


class TxnOffsetCommitResponse(Response, api_key=28, versions="0-5", flexible="3+"):
    """The answer."""

    throttle_time_ms: int = field(Int32, doc="Throttle time ms.")
    topics: list[TxnOffsetCommitResponseTopic] = field(Array(TxnOffsetCommitResponseTopic), doc="Topics.")
