"""`KafkaAdminClient`: kafka-python's admin client over the SDK's."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final, Self

import triokafka
from triokafka.blocking.admin.cluster import ClusterCalls
from triokafka.blocking.admin.configs import ConfigCalls
from triokafka.blocking.admin.groups import GroupCalls
from triokafka.blocking.admin.partitions import PartitionCalls
from triokafka.blocking.admin.security import SecurityCalls
from triokafka.blocking.admin.session import AdminSession
from triokafka.blocking.admin.topics import TopicCalls
from triokafka.blocking.admin.transactions import TransactionCalls
from triokafka.blocking.admin.unsupported import UnsupportedCalls
from triokafka.blocking.bootstrap import bootstrap
from triokafka.blocking.options import API_VERSION, NETWORK, network_options, take
from triokafka.client.admin.arguments import check_public_methods
from triokafka.delegation import delegated
from triokafka.loop_thread import loop_thread


class KafkaAdminClient:
    """Manages a Kafka cluster; kafka-python's interface.

    Keyword arguments are kafka-python's configuration with its defaults (``DEFAULT_CONFIG``). The constructor waits
    until a broker of ``bootstrap_servers`` answers, at most ``bootstrap_timeout_ms``. Any number of threads may use one
    client. Calls retry retriable errors for at most ``timeout_ms``, by default ``request_timeout_ms``.

    Raises:
        KafkaConfigurationError: a name or value cannot be used, or the security protocol is not supported.
        KafkaTimeoutError: no broker answered.
        UnsupportedVersionError: from calls that the SDK or the broker does not support.
    """

    DEFAULT_CONFIG: Final[dict[str, Any]] = {
        **NETWORK,
        "bootstrap_servers": "localhost",
        "client_id": f"triokafka-{triokafka.__version__}",
    }

    _closed = True  # also if the constructor failed

    def __init__(self, **configs: Any) -> None:
        self.config = take(self.DEFAULT_CONFIG, configs)
        options = {**network_options(self.config), "close_timeout_ms": 0}
        loop = loop_thread()
        bootstrap(loop, self.config, self.config["bootstrap_timeout_ms"])
        self.config["api_version"] = self.config["api_version"] or API_VERSION
        self._session = session = AdminSession(loop, self.config, options)
        self._topics = TopicCalls(session)
        self._partitions = PartitionCalls(session, self._topics)
        self._configs = ConfigCalls(session)
        self._groups = GroupCalls(session, self._partitions)
        self._cluster = ClusterCalls(session, self._partitions)
        self._transactions = TransactionCalls(session)
        self._security = SecurityCalls(session)
        self._unsupported = UnsupportedCalls()
        loop.call(session.open)
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._closed:
            self._closed = True
            self._session.abandon()

    def close(self) -> None:
        """End the client; does nothing if it has ended already."""
        if not self._closed:
            self._closed = True
            self._session.end()

    list_topics = delegated("_topics", TopicCalls.list_topics)
    describe_topics = delegated("_topics", TopicCalls.describe_topics)
    create_topics = delegated("_topics", TopicCalls.create_topics)
    wait_for_topics = delegated("_topics", TopicCalls.wait_for_topics)
    delete_topics = delegated("_topics", TopicCalls.delete_topics)
    create_partitions = delegated("_topics", TopicCalls.create_partitions)
    describe_topic_partitions = delegated("_topics", TopicCalls.describe_topic_partitions)

    delete_records = delegated("_partitions", PartitionCalls.delete_records)
    list_partition_offsets = delegated("_partitions", PartitionCalls.list_partition_offsets)
    elect_leaders = delegated("_partitions", PartitionCalls.elect_leaders)
    alter_partition_reassignments = delegated("_partitions", PartitionCalls.alter_partition_reassignments)
    list_partition_reassignments = delegated("_partitions", PartitionCalls.list_partition_reassignments)
    describe_producers = delegated("_partitions", PartitionCalls.describe_producers)
    alter_replica_log_dirs = delegated("_partitions", PartitionCalls.alter_replica_log_dirs)

    describe_configs = delegated("_configs", ConfigCalls.describe_configs)
    alter_configs = delegated("_configs", ConfigCalls.alter_configs)
    reset_configs = delegated("_configs", ConfigCalls.reset_configs)
    list_config_resources = delegated("_configs", ConfigCalls.list_config_resources)

    list_groups = delegated("_groups", GroupCalls.list_groups)
    describe_groups = delegated("_groups", GroupCalls.describe_groups)
    delete_groups = delegated("_groups", GroupCalls.delete_groups)
    remove_group_members = delegated("_groups", GroupCalls.remove_group_members)
    list_group_offsets = delegated("_groups", GroupCalls.list_group_offsets)
    alter_group_offsets = delegated("_groups", GroupCalls.alter_group_offsets)
    reset_group_offsets = delegated("_groups", GroupCalls.reset_group_offsets)
    delete_group_offsets = delegated("_groups", GroupCalls.delete_group_offsets)

    describe_cluster = delegated("_cluster", ClusterCalls.describe_cluster)
    describe_log_dirs = delegated("_cluster", ClusterCalls.describe_log_dirs)
    describe_metadata_quorum = delegated("_cluster", ClusterCalls.describe_metadata_quorum)
    describe_features = delegated("_cluster", ClusterCalls.describe_features)
    update_features = delegated("_cluster", ClusterCalls.update_features)

    list_transactions = delegated("_transactions", TransactionCalls.list_transactions)
    describe_transactions = delegated("_transactions", TransactionCalls.describe_transactions)
    abort_transaction = delegated("_transactions", TransactionCalls.abort_transaction)
    find_hanging_transactions = delegated("_transactions", TransactionCalls.find_hanging_transactions)

    api_versions = delegated("_unsupported", UnsupportedCalls.api_versions)
    get_broker_version_data = delegated("_unsupported", UnsupportedCalls.get_broker_version_data)
    describe_acls = delegated("_security", SecurityCalls.describe_acls)
    create_acls = delegated("_security", SecurityCalls.create_acls)
    delete_acls = delegated("_security", SecurityCalls.delete_acls)
    alter_user_scram_credentials = delegated("_security", SecurityCalls.alter_user_scram_credentials)
    describe_user_scram_credentials = delegated("_security", SecurityCalls.describe_user_scram_credentials)


check_public_methods(KafkaAdminClient)
