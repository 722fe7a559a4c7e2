"""DescribeLogDirs (API key 35): the replicas and sizes in a broker's data directories (KIP-113).

Versions 1–5; flexible from 2. v3: an error of the whole request. v4: the size of the volumes (KIP-827). v5: cordoned
directories.
"""

from __future__ import annotations

from functools import partial

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Int16, Int32, Int64, String

_error_code = partial(
    field,
    Int16,
    doc="The error code; 0 means success.",
    errors=("KafkaStorageError", "LogDirNotFoundError", "ClusterAuthorizationFailedError"),
)


class DescribableLogDirTopic(Struct):
    """A topic to look for."""

    topic: str = field(String, doc="The topic's name.")
    partitions: list[int] = field(Array(Int32), doc="Numbers of the partitions to look for.")


class DescribeLogDirsRequest(Request["DescribeLogDirsResponse"], api_key=35, versions="1-5", flexible="2+"):
    """Ask for the content of the directories."""

    topics: list[DescribableLogDirTopic] | None = field(
        Array(DescribableLogDirTopic), nullable="0+", doc="The topics; null for all."
    )


class DescribeLogDirsPartition(Struct):
    """One replica in the directory."""

    partition_index: int = field(Int32, doc="The partition's number.")
    partition_size: int = field(Int64, doc="Bytes of the replica's segments.")
    offset_lag: int = field(
        Int64,
        doc="How many records the replica is behind: a current one behind its high watermark, a future one behind the "
        "current one.",
    )
    is_future_key: bool = field(
        Boolean, doc="Whether this copy will replace the one in another directory once it has caught up."
    )


class DescribeLogDirsTopic(Struct):
    """A topic with replicas in the directory."""

    name: str = field(String, doc="The topic's name.")
    partitions: list[DescribeLogDirsPartition] = field(Array(DescribeLogDirsPartition), doc="The replicas.")


class DescribeLogDirsResult(Struct):
    """One directory."""

    error_code: int = _error_code()
    log_dir: str = field(String, doc="The absolute path of the directory.")
    topics: list[DescribeLogDirsTopic] = field(
        Array(DescribeLogDirsTopic), doc="The replicas in the directory, by topic."
    )
    total_bytes: int = field(
        Int64,
        versions="4+",
        ignorable=True,
        default=-1,
        doc="Size of the volume that the directory is on; -1 when unknown.",
    )
    usable_bytes: int = field(
        Int64, versions="4+", ignorable=True, default=-1, doc="The free bytes of the volume; -1 if unknown."
    )
    is_cordoned: bool = field(
        Boolean,
        versions="5+",
        ignorable=True,
        default=False,
        doc="Whether the directory is cordoned: it gets no new replicas.",
    )


class DescribeLogDirsResponse(Response, api_key=35, versions="1-5", flexible="2+"):
    """One result per directory."""

    throttle_time_ms: int = fields.throttle_time_ms()
    error_code: int = _error_code(versions="3+", ignorable=True)
    results: list[DescribeLogDirsResult] = field(Array(DescribeLogDirsResult), doc="The directories.")
