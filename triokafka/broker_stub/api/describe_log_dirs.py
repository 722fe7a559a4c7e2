"""DescribeLogDirs (API key 35): the logs in each data directory, their sizes and the free space (KIP-113, KIP-827).

Versions 1-5. v2: flexible. v3: top-level error code. v4: size of the volumes. v5: cordoned directories.
"""

from __future__ import annotations

from triokafka import errors
from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.broker_stub.work_budget import in_portions
from triokafka.protocol.api.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from triokafka.security.acl import AclOperation


@handles(DescribeLogDirsRequest, versions=range(1, 6), accesses=[cluster(AclOperation.DESCRIBE)])
async def describe_log_dirs(request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    """Describe each data directory. An offline directory has only an error code."""
    logs, replicas = context.logs, context.replicas
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, number) async for topic in in_portions(request.topics) for number in topic.partitions}
    found: dict[str, dict[str, list[DescribeLogDirsPartition]]] = {
        path.rstrip("/") or "/": {} for path in context.config.data_directories
    }
    async for key, log in in_portions(sorted(logs.all().items())):
        if wanted is not None and tuple(key) not in wanted:
            continue
        partition = replicas.find(*key)
        behind = 0 if partition is None else max(partition.high_watermark - log.log_end_offset, 0)
        found.setdefault(logs.directory_of(key), {}).setdefault(key.topic, []).append(
            DescribeLogDirsPartition(partition_index=key.partition, partition_size=log.size, offset_lag=behind)
        )
    for future in logs.mover.future_logs():
        topic, number = future.topic_partition
        if wanted is None or (topic, number) in wanted:
            found[future.directory].setdefault(topic, []).append(
                DescribeLogDirsPartition(
                    partition_index=number,
                    partition_size=future.size,
                    offset_lag=future.behind,
                    is_future_key=True,
                )
            )
    return DescribeLogDirsResponse(results=[_directory(path, topics, context) for path, topics in found.items()])


def _directory(
    path: str, topics: dict[str, list[DescribeLogDirsPartition]], context: RequestContext
) -> DescribeLogDirsResult:
    logs = context.logs
    # Tools that move logs accept only absolute paths.
    shown = context.world.storage.absolute(path)
    try:
        offline = logs.offline_directories()
        if path in offline:
            raise OSError(offline[path])
        total, usable = context.world.storage.space(path)
    except OSError:
        return DescribeLogDirsResult(error_code=errors.KafkaStorageError.code, log_dir=shown)
    return DescribeLogDirsResult(
        log_dir=shown,
        topics=[DescribeLogDirsTopic(name=name, partitions=held) for name, held in topics.items()],
        total_bytes=total,
        usable_bytes=usable,
        is_cordoned=path in logs.cordoned,
    )
