"""The cluster, its brokers, directories and features; and what cannot be managed yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from triokafka.blocking.admin.session import AdminPart, names_of, text_of, together
from triokafka.blocking.admin.types import UpdateFeatureType
from triokafka.client.admin import FeatureUpdate, LogDirDescription, QuorumDescription, QuorumReplica, UpgradeType
from triokafka.errors import BrokerResponseError, KafkaError
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    from triokafka import AdminClient


class ClusterPart(AdminPart):
    """The part of `KafkaAdminClient` about the cluster."""

    def describe_cluster(self) -> dict[str, Any]:
        """Cluster id, controller, brokers (fenced ones included), and what the caller may do, with the protocol's field
        names."""
        patience = self._validate_timeout(None)
        found = self._run(
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
        """What is in the data directories of brokers, with the protocol's field names."""
        partitions: list[TopicPartition] | None = None
        if topic_partitions is not None:
            partitions = self._topic_partitions(topic_partitions)  # type: ignore[attr-defined]
        asked = None if brokers is None else list(brokers)

        async def ask(admin: AdminClient) -> list[dict[str, Any]]:
            found = await admin.describe_log_dirs(asked, partitions, timeout_ms=self._validate_timeout(None))
            return [
                {"broker": broker, "log_dirs": [_directory(path, one) for path, one in found[broker].items()]}
                for broker in found
            ]

        return self._run(ask)

    def describe_metadata_quorum(self) -> dict[str, Any]:
        """The voters of the metadata log, and how far they are, with the protocol's field names."""
        patience = self._validate_timeout(None)
        log = TopicPartition("__cluster_metadata", 0)

        async def ask(admin: AdminClient) -> QuorumDescription | KafkaError:
            async def look() -> dict[TopicPartition, QuorumDescription]:
                return {log: await admin.describe_metadata_quorum(timeout_ms=patience)}

            answer: QuorumDescription | KafkaError = (await together([log], look()))[log]
            return answer

        found = self._run(ask)
        error = None
        if isinstance(found, KafkaError):
            # Which partition it is of stands beside it here.
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
        """Features, as ``{"supported": (low, high), "finalized": (low, high), "finalized_epoch": number}``."""
        found = self._run(lambda admin: admin.describe_features(timeout_ms=self._validate_timeout(None)))
        features: dict[str, dict[str, Any]] = {}
        for name, supported in found.supported.items():
            features.setdefault(name, {})["supported"] = (supported.min_version, supported.max_version)
        for name, finalized in found.finalized.items():
            one = features.setdefault(name, {})
            one["finalized"] = (finalized.min_version, finalized.max_version)
            one["finalized_epoch"] = found.epoch
        return features

    def update_features(
        self, feature_updates: Mapping[str, Any], validate_only: bool = False, timeout_ms: float = 60_000
    ) -> dict[str, str]:
        """Set features to levels, ``{name: level}`` or ``{name: (UpdateFeatureType, level)}``, all of them or none."""
        if not isinstance(feature_updates, dict):
            raise TypeError("feature_updates must be a dict of {name: level} or {name: (UpdateFeatureType, level)}")
        updates: dict[str, FeatureUpdate | int] = {}
        for name, given in feature_updates.items():
            kind, level = given if isinstance(given, tuple) else (UpdateFeatureType.UPGRADE, given)
            updates[name] = FeatureUpdate(int(level), UpgradeType(UpdateFeatureType.value_for(kind)))

        async def update(admin: AdminClient) -> dict[str, Any]:
            change = admin.update_features(updates, validate_only=validate_only, timeout_ms=timeout_ms)
            return await together(updates, change)

        return {name: text_of(outcome) for name, outcome in self._run(update).items()}

    # ---------------------------------------------------------------- what is not there

    def api_versions(self) -> NoReturn:
        """The SDK negotiates versions by itself and does not show them.

        Raises:
            UnsupportedVersionError: always.
        """
        self._lacks("api_versions()")

    def get_broker_version_data(self, broker_id: int) -> NoReturn:
        """As `api_versions`."""
        self._lacks("get_broker_version_data()")

    def describe_acls(self, acl_filter: Any) -> NoReturn:
        """Access control lists are not there yet.

        Raises:
            UnsupportedVersionError: always.
        """
        self._lacks("access control lists")

    def create_acls(self, acls: Any) -> NoReturn:
        """As `describe_acls`."""
        self._lacks("access control lists")

    def delete_acls(self, acl_filters: Any) -> NoReturn:
        """As `describe_acls`."""
        self._lacks("access control lists")

    def alter_user_scram_credentials(self, alterations: Any) -> NoReturn:
        """SCRAM users are not there yet.

        Raises:
            UnsupportedVersionError: always.
        """
        self._lacks("SCRAM users")

    def describe_user_scram_credentials(self, users: Any = None) -> NoReturn:
        """As `alter_user_scram_credentials`."""
        self._lacks("SCRAM users")

    def list_transactions(
        self,
        broker_ids: Any = None,
        producer_id_filters: Any = None,
        state_filters: Any = None,
        duration_filter_ms: Any = None,
        transactional_id_pattern: Any = None,
    ) -> NoReturn:
        """Transactions are not there yet.

        Raises:
            UnsupportedVersionError: always.
        """
        self._lacks("transactions")

    def describe_transactions(self, transactional_ids: Any) -> NoReturn:
        """As `list_transactions`."""
        self._lacks("transactions")

    def abort_transaction(self, spec: Any) -> NoReturn:
        """As `list_transactions`."""
        self._lacks("transactions")

    def find_hanging_transactions(
        self, broker_ids: Any = None, max_transaction_timeout_ms: float = 900_000
    ) -> NoReturn:
        """As `list_transactions`."""
        self._lacks("transactions")


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
