"""Brokers and the quorum: data directories, features, registration."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Final

from triokafka.client.admin.base import by_topic, failure_of
from triokafka.client.admin.partition_types import (
    FeatureDescription,
    FeatureRange,
    FeatureUpdate,
    LogDirDescription,
    QuorumDescription,
    QuorumReplica,
    ReplicaInfo,
    TopicPartitionReplica,
)
from triokafka.client.admin.quotas import QuotaAdmin
from triokafka.client.admin.types import Results
from triokafka.errors import KafkaError
from triokafka.protocol.api.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from triokafka.protocol.api.api_versions import ApiVersionsRequest
from triokafka.protocol.api.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from triokafka.protocol.api.describe_quorum import (
    DescribeQuorumRequest,
    PartitionData,
    ReplicaState,
    TopicData,
)
from triokafka.protocol.api.unregister_broker import UnregisterBrokerRequest
from triokafka.protocol.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from triokafka.structs import Node, TopicPartition

_METADATA_LOG: Final = "__cluster_metadata"
_FEATURES_SINCE: Final = 3
_NIL: Final = uuid.UUID(int=0)


class BrokerAdmin(QuotaAdmin):
    """The part of `AdminClient` about brokers."""

    async def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> Results[int, dict[str, LogDirDescription]]:
        """The data directories of brokers (all by default) by path, with what they hold of the given partitions (all).

        Reading a broker that failed raises its error; a directory that failed says so in its description.
        """
        topics = None
        if partitions is not None:
            topics = [
                DescribableLogDirTopic(topic=topic, partitions=numbers)
                for topic, numbers in by_topic(dict.fromkeys(partitions)).items()
            ]
        ids = sorted(await self._node_ids(timeout_ms)) if brokers is None else list(brokers)

        async def do_round(items: list[int], left_ms: int) -> Mapping[int, dict[str, LogDirDescription] | Exception]:
            outcomes: dict[int, dict[str, LogDirDescription] | Exception] = {}
            for node in items:
                try:
                    await self._node(node, left_ms)
                    response = await self._client.send(
                        node, DescribeLogDirsRequest(topics=topics), timeout_ms=self._patience(left_ms)
                    )
                except KafkaError as error:
                    outcomes[node] = error
                    continue
                outcomes[node] = (
                    self._error(response.error_code, f"log directories of broker {node}")
                    if response.error_code
                    else {result.log_dir: self._directory(node, result) for result in response.results}
                )
            return outcomes

        return await self._each(ids, do_round, timeout_ms)

    async def _node_ids(self, timeout_ms: float | None) -> list[int]:
        async def ask(left_ms: int) -> list[int]:
            return list((await self._client.refresh_metadata(timeout_ms=left_ms)).nodes)

        return await self._once(ask, timeout_ms)

    def _directory(self, node: int, result: DescribeLogDirsResult) -> LogDirDescription:
        error = None
        if result.error_code:
            error = self._error(result.error_code, f"log directory {result.log_dir} of broker {node}")
        replicas = {
            TopicPartition(topic.name, p.partition_index): ReplicaInfo(p.partition_size, p.offset_lag, p.is_future_key)
            for topic in result.topics
            for p in topic.partitions
        }
        return LogDirDescription(error, replicas, result.total_bytes, result.usable_bytes, result.is_cordoned)

    async def alter_replica_log_dirs(
        self, assignments: Mapping[TopicPartitionReplica, str], *, timeout_ms: float | None = None
    ) -> None:
        """Say in which data directory (its absolute path) replicas shall be; brokers then move them (KIP-113).

        Raises:
            LogDirNotFoundError, KafkaStorageError, ReplicaNotAvailableError, …: one replica could not be moved; an
                `ExceptionGroup` when several could not.
        """

        async def do_round(
            items: list[TopicPartitionReplica], left_ms: int
        ) -> Mapping[TopicPartitionReplica, Exception | None]:
            outcomes: dict[TopicPartitionReplica, Exception | None] = {}
            for node in dict.fromkeys(item.broker_id for item in items):
                directories: dict[str, list[TopicPartition]] = {}
                for item in items:
                    if item.broker_id == node:
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
                await self._node(node, left_ms)
                response = await self._client.send(node, request, timeout_ms=self._patience(left_ms))
                for topic in response.results:
                    for p in topic.partitions:
                        replica = TopicPartitionReplica(topic.topic_name, p.partition_index, node)
                        outcomes[replica] = self._error(p.error_code, replica) if p.error_code else None
            return outcomes

        await self._change(assignments, do_round, timeout_ms)

    async def describe_features(self, *, timeout_ms: float | None = None) -> FeatureDescription:
        """The levels that the cluster's features are at, and those that the broker that answers supports (KIP-584)."""

        async def ask(left_ms: int) -> FeatureDescription:
            request = ApiVersionsRequest(client_software_name="triokafka", client_software_version="admin")
            response = await self._any(request, left_ms, min_version=_FEATURES_SINCE)
            if response.error_code:
                raise self._error(response.error_code, "features")
            return FeatureDescription(
                finalized={
                    f.name: FeatureRange(f.min_version_level, f.max_version_level) for f in response.finalized_features
                },
                supported={f.name: FeatureRange(f.min_version, f.max_version) for f in response.supported_features},
                epoch=response.finalized_features_epoch if response.finalized_features_epoch >= 0 else None,
            )

        return await self._once(ask, timeout_ms)

    async def update_features(
        self,
        updates: Mapping[str, FeatureUpdate | int],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Set features to levels, all of them or none (brokers from 3.3 on).

        Raises:
            InvalidUpdateVersionError, FeatureUpdateFailedError, ClusterAuthorizationFailedError: nothing has changed;
                an `ExceptionGroup` when several were refused.
        """
        wanted = {
            name: update if isinstance(update, FeatureUpdate) else FeatureUpdate(update)
            for name, update in updates.items()
        }

        async def ask(left_ms: int) -> None:
            request = UpdateFeaturesRequest(
                timeout_ms=left_ms,
                feature_updates=[
                    FeatureUpdateKey(feature=name, max_version_level=u.level, upgrade_type=u.upgrade_type)
                    for name, u in wanted.items()
                ],
                validate_only=validate_only,
            )
            response = await self._controller(request, left_ms, min_version=1)
            if response.error_code:
                raise self._error(response.error_code, "features", response.error_message)
            failed = {
                result.feature: self._error(result.error_code, f"feature {result.feature}", result.error_message)
                for result in response.results
                if result.error_code
            }
            if failed:
                raise failure_of(Results({name: None for name in wanted if name not in failed}, failed))

        await self._once(ask, timeout_ms)

    async def describe_metadata_quorum(self, *, timeout_ms: float | None = None) -> QuorumDescription:
        """The leader, the voters and the observers of the metadata quorum (KIP-595)."""

        async def ask(left_ms: int) -> QuorumDescription:
            request = DescribeQuorumRequest(
                topics=[TopicData(topic_name=_METADATA_LOG, partitions=[PartitionData(partition_index=0)])]
            )
            response = await self._any(request, left_ms)
            if response.error_code:
                raise self._error(response.error_code, "the quorum", response.error_message)
            found = response.topics[0].partitions[0]
            if found.error_code:
                metadata = TopicPartition(_METADATA_LOG, 0)
                raise failure_of(Results({}, {metadata: self._error(found.error_code, metadata, found.error_message)}))
            nodes = {
                node.node_id: tuple(Node(node.node_id, listener.host, listener.port) for listener in node.listeners)
                for node in response.nodes
            }
            return QuorumDescription(
                found.leader_id,
                found.leader_epoch,
                found.high_watermark,
                tuple(_replica(state) for state in found.current_voters),
                tuple(_replica(state) for state in found.observers),
                nodes,
            )

        return await self._once(ask, timeout_ms)

    async def unregister_broker(self, broker_id: int, *, timeout_ms: float | None = None) -> None:
        """Forget a broker that will not come back.

        Raises:
            BrokerIdNotRegisteredError: there is no such broker.
        """

        async def ask(left_ms: int) -> None:
            response = await self._controller(UnregisterBrokerRequest(broker_id=broker_id), left_ms)
            if response.error_code:
                raise self._error(response.error_code, f"broker {broker_id}", response.error_message)

        await self._once(ask, timeout_ms)


def _replica(state: ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        state.replica_id,
        None if state.replica_directory_id == _NIL else state.replica_directory_id,
        state.log_end_offset,
        None if state.last_fetch_timestamp < 0 else state.last_fetch_timestamp,
        None if state.last_caught_up_timestamp < 0 else state.last_caught_up_timestamp,
    )
