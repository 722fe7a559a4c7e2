"""AlterReplicaLogDirs (API key 34): move replicas to another data directory (KIP-113).

Versions 1-2. v2: flexible. The broker responds immediately and moves the log in the background while clients use it.
DescribeLogDirs shows the progress.
"""

from __future__ import annotations

from triokafka import errors
from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.broker_stub.work_budget import in_portions
from triokafka.protocol.api.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from triokafka.security.acl import AclOperation
from triokafka.structs import TopicPartition


def _by_partition(request: AlterReplicaLogDirsRequest) -> dict[TopicPartition, str]:
    """Return the requested directory of each partition: the last one if the request names several."""
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


@handles(AlterReplicaLogDirsRequest, versions=range(1, 3), accesses=[cluster(AclOperation.ALTER)], on_error=_failed)
async def alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    """Start to move each log that is not in its requested directory."""
    asked = _by_partition(request)
    return _response({key: _code(key, path, context) async for key, path in in_portions(asked.items())})


def _code(key: TopicPartition, path: str, context: RequestContext) -> int:
    try:
        context.logs.mover.move(key, path)
    except errors.BrokerResponseError as error:
        return error.code
    return 0
