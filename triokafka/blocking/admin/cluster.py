"""The calls of `KafkaAdminClient` about the cluster, its brokers, directories and features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from triokafka.blocking.admin.partitions import PartitionCalls
from triokafka.blocking.admin.session import AdminSession, names_of, text_of
from triokafka.blocking.admin.types import UpdateFeatureType
from triokafka.client.admin import FeatureUpdate, LogDirDescription, QuorumDescription, QuorumReplica, UpgradeType
from triokafka.errors import BrokerResponseError, KafkaError
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    from triokafka import AdminClient


class ClusterCalls:
    """Describes the cluster and its log directories, and describes and updates features."""

    def __init__(self, session: AdminSession, partitions: PartitionCalls) -> None:
        self._session = session
        self._partitions = partitions

    def describe_cluster(self) -> dict[str, Any]:
        """Describe the cluster: id, controller, brokers (also fenced ones), and the operations allowed to the caller.

        Returns a dict with the protocol's field names.
        """
        patience = self._session.timeout_ms()
        found = self._session.run(
            lambda admin: admin.describe_cluster(
                include_fenced_brokers=True, include_authorized_operations=True, timeout_ms=patience
            )
        )
        return {
            "cluster_id": found.cluster_id,
            "controller_id": -1 if found.controller is None else found.controller.node_id,
            "brokers": [
                {
                    "broker_id": node.node_id,
                    "host": node.host,
                    "port": node.port,
                    "rack": node.rack,
                    "is_fenced": node.node_id in found.fenced,
                }
                for node in found.nodes
            ],
            "authorized_operations": names_of(found.authorized_operations),
        }

    def describe_log_dirs(
        self,
        topic_partitions: Mapping[str, Iterable[int]] | Iterable[str] | None = None,
        brokers: Iterable[int] | None = None,
    ) -> list[dict[str, Any]]:
        """Describe the log directories of brokers and their replicas, with the protocol's field names."""
        partitions: list[TopicPartition] | None = None
        if topic_partitions is not None:
            partitions = self._partitions.resolve(topic_partitions)
        asked = None if brokers is None else list(brokers)

        async def ask(admin: AdminClient) -> list[dict[str, Any]]:
            found = await admin.describe_log_dirs(asked, partitions, timeout_ms=self._session.timeout_ms())
            return [
                {"broker": broker, "log_dirs": [_directory(path, one) for path, one in found[broker].items()]}
                for broker in found
            ]

        return self._session.run(ask)

    def describe_metadata_quorum(self) -> dict[str, Any]:
        """Describe the voters of the metadata log and their progress, with the protocol's field names."""
        patience = self._session.timeout_ms()
        log = TopicPartition("__cluster_metadata", 0)

        async def ask(admin: AdminClient) -> dict[TopicPartition, QuorumDescription]:
            return {log: await admin.describe_metadata_quorum(timeout_ms=patience)}

        found: QuorumDescription | KafkaError = self._session.change([log], ask)[log]
        error = None
        if isinstance(found, KafkaError):
            # The result names the partition already.
            found, error = QuorumDescription(-1, -1, -1, (), (), {}), str(found).removeprefix(f"{log}: ")
        partition = {
            "partition_index": log.partition,
            "leader_id": found.leader_id,
            "leader_epoch": found.leader_epoch,
            "high_watermark": found.high_watermark,
            "current_voters": [_replica(one) for one in found.voters],
            "observers": [_replica(one) for one in found.observers],
            "error": error,
        }
        return {"topics": [{"topic_name": log.topic, "partitions": [partition]}]}

    def describe_features(self, send_request_to_controller: bool = False) -> dict[str, dict[str, Any]]:
        """Describe features as ``{"supported": (low, high), "finalized": (low, high), "finalized_epoch": number}``."""
        found = self._session.run(lambda admin: admin.describe_features(timeout_ms=self._session.timeout_ms()))
        features: dict[str, dict[str, Any]] = {}
        for name, supported in found.supported.items():
            features.setdefault(name, {})["supported"] = (supported.min_version, supported.max_version)
        for name, finalized in found.finalized.items():
            one = features.setdefault(name, {})
            one["finalized"] = (finalized.min_version, finalized.max_version)
            one["finalized_epoch"] = found.epoch
        return features

    def update_features(
        self, feature_updates: Mapping[str, Any] | Any, validate_only: bool = False, timeout_ms: float = 60_000
    ) -> dict[str, str]:
        """Set features to levels, ``{name: level}`` or ``{name: (UpdateFeatureType, level)}``, all of them or none."""
        if not isinstance(feature_updates, dict):
            raise TypeError("feature_updates must be a dict of {name: level} or {name: (UpdateFeatureType, level)}")
        updates: dict[str, FeatureUpdate | int] = {}
        for name, given in feature_updates.items():
            kind, level = given if isinstance(given, tuple) else (UpdateFeatureType.UPGRADE, given)
            updates[name] = FeatureUpdate(int(level), UpgradeType(UpdateFeatureType.value_for(kind)))

        outcomes = self._session.change(
            updates, lambda admin: admin.update_features(updates, validate_only=validate_only, timeout_ms=timeout_ms)
        )
        return {name: text_of(outcome) for name, outcome in outcomes.items()}


def _directory(path: str, found: LogDirDescription) -> dict[str, Any]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), replica in found.replicas.items():
        topics.setdefault(topic, []).append(
            {
                "partition_index": partition,
                "partition_size": replica.size,
                "offset_lag": replica.offset_lag,
                "is_future_key": replica.is_future,
            }
        )
    return {
        "error_code": found.error.code if isinstance(found.error, BrokerResponseError) else 0,
        "log_dir": path,
        "topics": [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()],
        "total_bytes": found.total_bytes,
        "usable_bytes": found.usable_bytes,
        "is_cordoned": found.is_cordoned,
    }


def _replica(replica: QuorumReplica) -> dict[str, Any]:
    return {
        "replica_id": replica.replica_id,
        "replica_directory_id": None if replica.directory_id is None else str(replica.directory_id),
        "log_end_offset": replica.log_end_offset,
        "last_fetch_timestamp": -1 if replica.last_fetch_timestamp is None else replica.last_fetch_timestamp,
        "last_caught_up_timestamp": (
            -1 if replica.last_caught_up_timestamp is None else replica.last_caught_up_timestamp
        ),
    }
