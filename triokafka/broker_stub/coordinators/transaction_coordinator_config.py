"""The transaction coordinator of a broker: its log, its configuration, and the way to the partitions' leaders."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.coordinators.broker_channels import BrokerChannels
from triokafka.broker_stub.coordinators.marker_sender import MarkerSender
from triokafka.broker_stub.coordinators.marker_writer import PartitionMarkers
from triokafka.broker_stub.coordinators.replicated_log import ReplicatedCoordinatorLog
from triokafka.broker_stub.metadata import MetadataImage
from triokafka.broker_stub.metadata.features import TRANSACTION_VERSION
from triokafka.broker_stub.replica.replica_manager import ReplicaManager
from triokafka.coordinator.transaction.config import TransactionCoordinatorConfig
from triokafka.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from triokafka.structs import TopicPartition
from triokafka.topic_names import TRANSACTION_STATE_TOPIC
from triokafka.world import World


def transaction_coordinator(
    world: World,
    config: BrokerConfig,
    replicas: ReplicaManager,
    image: Callable[[], MetadataImage],
    *,
    markers: PartitionMarkers,
    nodes: BrokerChannels,
    new_producer_id: Callable[[], Awaitable[int]],
) -> TransactionCoordinator:
    """Return the coordinator over the partitions of ``__transaction_state`` that this broker leads.

    Args:
        markers: writes markers to the partitions that this broker leads.
        nodes: reaches the other brokers.
        new_producer_id: returns an unused producer id.
    """

    def leader_of(partition: TopicPartition) -> int | None:
        state = image().partition(*partition)
        return None if state is None else state.leader

    log = ReplicatedCoordinatorLog(
        TRANSACTION_STATE_TOPIC, replicas, read_bytes=config.transaction_state_log_load_buffer_size
    )
    return TransactionCoordinator(
        world,
        log,
        new_producer_id,
        MarkerSender(world, config.node_id, markers, nodes, leader_of),
        lambda: image().features.get(TRANSACTION_VERSION, 0),
        transaction_config(config),
    )


def transaction_config(config: BrokerConfig) -> TransactionCoordinatorConfig:
    """Return the coordinator's part of the broker configuration."""
    return TransactionCoordinatorConfig(
        transaction_max_timeout_ms=config.transaction_max_timeout_ms,
        transactional_id_expiration_ms=config.transactional_id_expiration_ms,
        abort_timed_out_transactions_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        remove_expired_transactions_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        add_partitions_wait_ms=config.add_partitions_to_txn_retry_backoff_max_ms,
        state_log_num_partitions=config.transaction_state_log_num_partitions,
    )
