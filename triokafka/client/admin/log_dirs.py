"""The data directories of brokers: their content, and moves of replicas between them (KIP-113)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from triokafka.client.admin.call_routing import CallRouting
from triokafka.client.admin.partition_types import (
    LogDirDescription,
    ReplicaInfo,
    TopicPartitionReplica,
)
from triokafka.client.admin.retries import AdminRetries
from triokafka.client.admin.types import Results
from triokafka.protocol.api.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from triokafka.protocol.api.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from triokafka.structs import TopicPartition, by_topic


class LogDirAdmin:
    """The part of `AdminClient` about data directories."""

    def __init__(self, retries: AdminRetries) -> None:
        self._retries = retries

    async def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> Results[int, dict[str, LogDirDescription]]:
        """Return the data directories of brokers (default all) by path, with replicas of partitions (default all).

        Reading a broker that failed raises its error; the description of a failed directory has its error.
        """
        topics = None
        if partitions is not None:
            topics = [
                DescribableLogDirTopic(topic=topic, partitions=numbers)
                for topic, numbers in by_topic(dict.fromkeys(partitions)).items()
            ]
        time_left = self._retries.countdown(timeout_ms)
        if brokers is None:
            brokers = sorted(node.node_id for node in await self._retries.brokers(time_left()))

        async def ask(node: int, _: list[int], call: CallRouting) -> Mapping[int, dict[str, LogDirDescription]]:
            await call.node(node)
            response = await call.to_node(node, DescribeLogDirsRequest(topics=topics))
            self._retries.check(response.error_code, f"log directories of broker {node}")
            return {node: {result.log_dir: self._directory(node, result) for result in response.results}}

        async def do_round(
            items: list[int], call: CallRouting
        ) -> Mapping[int, dict[str, LogDirDescription] | Exception]:
            return await call.side_by_side({node: [node] for node in items}, ask)

        return await self._retries.each(brokers, do_round, time_left())

    def _directory(self, node: int, result: DescribeLogDirsResult) -> LogDirDescription:
        error = self._retries.error(result.error_code, f"log directory {result.log_dir} of broker {node}")
        replicas = {
            TopicPartition(topic.name, p.partition_index): ReplicaInfo(p.partition_size, p.offset_lag, p.is_future_key)
            for topic in result.topics
            for p in topic.partitions
        }
        return LogDirDescription(error, replicas, result.total_bytes, result.usable_bytes, result.is_cordoned)

    async def alter_replica_log_dirs(
        self, assignments: Mapping[TopicPartitionReplica, str], *, timeout_ms: float | None = None
    ) -> None:
        """Move replicas to data directories of their brokers, given by absolute path (KIP-113).

        Raises:
            LogDirNotFoundError, KafkaStorageError, ReplicaNotAvailableError, …: one replica could not be moved; an
                `ExceptionGroup` when several could not.
        """

        async def move(
            node: int, items: list[TopicPartitionReplica], call: CallRouting
        ) -> Mapping[TopicPartitionReplica, Exception | None]:
            directories: dict[str, list[TopicPartition]] = {}
            for item in items:
                directories.setdefault(assignments[item], []).append(TopicPartition(item.topic, item.partition))
            request = AlterReplicaLogDirsRequest(
                dirs=[
                    AlterReplicaLogDir(
                        path=path,
                        topics=[
                            AlterReplicaLogDirTopic(name=topic, partitions=numbers)
                            for topic, numbers in by_topic(wanted).items()
                        ],
                    )
                    for path, wanted in directories.items()
                ]
            )
            await call.node(node)
            response = await call.to_node(node, request)
            return {
                replica: self._retries.error(p.error_code, replica)
                for topic in response.results
                for p in topic.partitions
                for replica in (TopicPartitionReplica(topic.topic_name, p.partition_index, node),)
            }

        async def do_round(
            items: list[TopicPartitionReplica], call: CallRouting
        ) -> Mapping[TopicPartitionReplica, Exception | None]:
            by_node: dict[int, list[TopicPartitionReplica]] = {}
            for item in items:
                by_node.setdefault(item.broker_id, []).append(item)
            return await call.side_by_side(by_node, move)

        await self._retries.change(assignments, do_round, timeout_ms)
