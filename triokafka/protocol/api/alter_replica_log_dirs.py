"""AlterReplicaLogDirs (API key 34): move replicas between the data directories of a broker (KIP-113).

Versions 1–2; flexible from 2.
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int32, String


class AlterReplicaLogDirTopic(Struct):
    """A topic with some of its partitions."""

    name: str = field(String, doc="The topic's name.")
    partitions: list[int] = field(Array(Int32), doc="Numbers of the partitions.")


class AlterReplicaLogDir(Struct):
    """A directory and the replicas to move there."""

    path: str = field(String, doc="The absolute path of the directory.")
    topics: list[AlterReplicaLogDirTopic] = field(
        Array(AlterReplicaLogDirTopic), doc="The replicas to move to the directory, by topic."
    )


class AlterReplicaLogDirsRequest(Request["AlterReplicaLogDirsResponse"], api_key=34, versions="1-2", flexible="2+"):
    """Move replicas to other log directories."""

    dirs: list[AlterReplicaLogDir] = field(Array(AlterReplicaLogDir), doc="The directories.")


class AlterReplicaLogDirPartitionResult(Struct):
    """The outcome for one partition."""

    partition_index: int = field(Int32, doc="The partition's number.")
    error_code: int = field(
        Int16,
        doc="The error code; 0 means success.",
        errors=(
            "LogDirNotFoundError",
            "KafkaStorageError",
            "ReplicaNotAvailableError",
            "UnknownTopicOrPartitionError",
            "InvalidTopicError",
            "ClusterAuthorizationFailedError",
        ),
    )


class AlterReplicaLogDirTopicResult(Struct):
    """The outcome for one topic."""

    topic_name: str = field(String, doc="The topic's name.")
    partitions: list[AlterReplicaLogDirPartitionResult] = field(
        Array(AlterReplicaLogDirPartitionResult), doc="One result per partition."
    )


class AlterReplicaLogDirsResponse(Response, api_key=34, versions="1-2", flexible="2+"):
    """One result per partition."""

    throttle_time_ms: int = fields.throttle_time_ms()
    results: list[AlterReplicaLogDirTopicResult] = field(
        Array(AlterReplicaLogDirTopicResult), doc="The results by topic."
    )
