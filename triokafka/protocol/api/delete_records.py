"""DeleteRecords (API key 21): delete the records of partitions below an offset.

Versions 0–2; flexible from 2.
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int32, Int64, String


class DeleteRecordsPartition(Struct):
    """A partition and the offset below which to delete its records."""

    partition_index: int = field(Int32, doc="The partition's number.")
    offset: int = field(
        Int64,
        doc="The first offset to keep; -1 for the high watermark.",
        errors=("OffsetOutOfRangeError", "PolicyViolationError"),
    )


class DeleteRecordsTopic(Struct):
    """Partitions of one topic."""

    name: str = fields.topic_name()
    partitions: list[DeleteRecordsPartition] = field(
        Array(DeleteRecordsPartition), doc="The offsets before which to delete records, by partition."
    )


class DeleteRecordsRequest(Request["DeleteRecordsResponse"], api_key=21, versions="0-2", flexible="2+"):
    """Forget records."""

    topics: list[DeleteRecordsTopic] = field(
        Array(DeleteRecordsTopic), doc="The offsets before which to delete records, by topic."
    )
    timeout_ms: int = fields.timeout_ms()


class DeleteRecordsPartitionResult(Struct):
    """The outcome for one partition."""

    partition_index: int = field(Int32, doc="The partition's number.")
    low_watermark: int = field(Int64, doc="The partition's first offset by now; -1 on an error.")
    error_code: int = field(
        Int16,
        doc="The error code of the partition; 0 if the records were deleted.",
        errors=(
            "UnknownTopicOrPartitionError",
            "NotLeaderForPartitionError",
            "OffsetOutOfRangeError",
            "PolicyViolationError",
            "RequestTimedOutError",
            "TopicAuthorizationFailedError",
            "KafkaStorageError",
        ),
    )


class DeleteRecordsTopicResult(Struct):
    """The outcomes for one topic."""

    name: str = field(String, doc="The topic's name.")
    partitions: list[DeleteRecordsPartitionResult] = field(
        Array(DeleteRecordsPartitionResult),
        doc="The outcomes by partition.",
    )


class DeleteRecordsResponse(Response, api_key=21, versions="0-2", flexible="2+"):
    """The outcome per partition."""

    throttle_time_ms: int = fields.throttle_time_ms()
    topics: list[DeleteRecordsTopicResult] = field(Array(DeleteRecordsTopicResult), doc="The outcomes by topic.")
