"""AlterReplicaLogDirs (API key 34): say in which data directory replicas shall be (KIP-113).

Versions 1-2. v2: flexible. A replica that is where it shall be is left there; moving one between directories is not
built, and answered with `KafkaStorageError`.
"""

from __future__ import annotations

from triokafka import errors
from triokafka.broker_stub.authorizer import Operation, cluster
from triokafka.broker_stub.handlers import RequestContext, handles
from triokafka.protocol.api.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from triokafka.structs import TopicPartition


def _by_partition(request: AlterReplicaLogDirsRequest) -> dict[TopicPartition, str]:
    """The directory that each partition is wanted in; the last one, if there are several."""
    return {
        TopicPartition(topic.name, number): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for number in topic.partitions
    }


def _response(codes: dict[TopicPartition, int]) -> AlterReplicaLogDirsResponse:
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for key, code in codes.items():
        topics.setdefault(key.topic, []).append(
            AlterReplicaLogDirPartitionResult(partition_index=key.partition, error_code=code)
        )
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(topic_name=name, partitions=found) for name, found in topics.items()]
    )


def _failed(
    request: AlterReplicaLogDirsRequest, context: RequestContext, code: int, message: str
) -> AlterReplicaLogDirsResponse:
    return _response({key: code for key in _by_partition(request)})


@handles(AlterReplicaLogDirsRequest, versions=range(1, 3), accesses=[cluster(Operation.ALTER)], on_error=_failed)
async def alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    """Check each partition against the directory that it is wanted in."""
    return _response({key: _code(key, path, context) for key, path in _by_partition(request).items()})


def _code(key: TopicPartition, path: str, context: RequestContext) -> int:
    broker = context.broker
    wanted = path.rstrip("/") or "/"
    if wanted not in {known.rstrip("/") or "/" for known in broker.config.data_directories}:
        return errors.LogDirNotFoundError.code
    if wanted in broker.logs.offline_directories():
        return errors.KafkaStorageError.code
    if broker.logs.get(key) is None:
        return errors.ReplicaNotAvailableError.code
    return 0 if broker.logs.directory_of(key) == wanted else errors.KafkaStorageError.code
