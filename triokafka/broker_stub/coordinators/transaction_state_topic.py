"""The transaction coordinator in the registry of a broker. Light: the coordinator is imported when it is created."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.coordinators.broker_channels import BrokerChannels
from triokafka.broker_stub.coordinators.coordinator_entry import Coordinator, CoordinatorEntry, InternalTopic, KeyType
from triokafka.broker_stub.metadata import MetadataImage
from triokafka.broker_stub.replica.replica_manager import ReplicaManager
from triokafka.topic_names import TRANSACTION_STATE_TOPIC
from triokafka.world import World

if TYPE_CHECKING:
    from triokafka.broker_stub.coordinators.marker_writer import PartitionMarkers
    from triokafka.coordinator.transaction.transaction_coordinator import TransactionCoordinator


def transaction_entry(
    world: World,
    config: BrokerConfig,
    replicas: ReplicaManager,
    image: Callable[[], MetadataImage],
    created: Callable[[Coordinator], None],
    *,
    markers: Callable[[], PartitionMarkers],
    nodes: BrokerChannels,
    new_producer_id: Callable[[], Awaitable[int]],
) -> CoordinatorEntry[TransactionCoordinator]:
    """Return the registry's entry for the transaction coordinator, whose topic is ``__transaction_state``."""

    def create() -> TransactionCoordinator:
        from triokafka.broker_stub.coordinators.transaction_coordinator_config import transaction_coordinator

        return transaction_coordinator(
            world, config, replicas, image, markers=markers(), nodes=nodes, new_producer_id=new_producer_id
        )

    topic = InternalTopic(
        TRANSACTION_STATE_TOPIC,
        config.transaction_state_log_num_partitions,
        config.transaction_state_log_replication_factor,
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config.transaction_state_log_min_isr),
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        },
    )
    return CoordinatorEntry(KeyType.TRANSACTION, topic, create, created)
