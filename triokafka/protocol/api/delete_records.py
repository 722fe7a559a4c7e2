"""DeleteRecords (API key 21)."""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int32, Int64, String


class DeleteRecordsPartition(Struct):
    """One item of ``partitions``."""

    partition_index: int = field(Int32, doc="Partition index.")
    offset: int = field(Int64, doc="Offset.")


class DeleteRecordsTopic(Struct):
    """One item of ``topics``."""

    name: str = field(String, doc="Name.")
    partitions: list[DeleteRecordsPartition] = field(Array(DeleteRecordsPartition), doc="Partitions.")


class DeleteRecordsRequest(Request["DeleteRecordsResponse"], api_key=21, versions="0-2", flexible="2+"):
    """Ask."""

    topics: list[DeleteRecordsTopic] = field(Array(DeleteRecordsTopic), doc="Topics.")
    timeout_ms: int = field(Int32, doc="Timeout ms.")


class DeleteRecordsPartitionResult(Struct):
    """One item of ``partitions``."""

    partition_index: int = field(Int32, doc="Partition index.")
    low_watermark: int = field(Int64, doc="Low watermark.")
    error_code: int = field(Int16, doc="Error code.")


class DeleteRecordsTopicResult(Struct):
    """One item of ``topics``."""

    name: str = field(String, doc="Name.")
    partitions: list[DeleteRecordsPartitionResult] = field(Array(DeleteRecordsPartitionResult), doc="Partitions.")


class DeleteRecordsResponse(Response, api_key=21, versions="0-2", flexible="2+"):
    """The answer."""

    throttle_time_ms: int = field(Int32, doc="Throttle time ms.")
    topics: list[DeleteRecordsTopicResult] = field(Array(DeleteRecordsTopicResult), doc="Topics.")
