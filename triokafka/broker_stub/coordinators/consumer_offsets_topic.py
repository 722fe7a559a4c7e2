"""The group coordinator in the registry of a broker. Light: the coordinator is imported when it is created."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.coordinators.coordinator_entry import Coordinator, CoordinatorEntry, InternalTopic, KeyType
from triokafka.broker_stub.metadata import MetadataImage
from triokafka.broker_stub.replica.replica_manager import ReplicaManager
from triokafka.topic_names import GROUP_METADATA_TOPIC
from triokafka.world import World

if TYPE_CHECKING:
    from triokafka.coordinator.group.group_coordinator import GroupCoordinator


def group_entry(
    world: World,
    config: BrokerConfig,
    replicas: ReplicaManager,
    image: Callable[[], MetadataImage],
    created: Callable[[Coordinator], None],
) -> CoordinatorEntry[GroupCoordinator]:
    """Return the registry's entry for the group coordinator, whose topic is ``__consumer_offsets``."""

    def create() -> GroupCoordinator:
        from triokafka.broker_stub.coordinators.group_coordinator_config import group_coordinator

        return group_coordinator(world, config, replicas, image)

    topic = InternalTopic(
        GROUP_METADATA_TOPIC,
        config.offsets_topic_num_partitions,
        config.offsets_topic_replication_factor,
        {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        },
    )
    return CoordinatorEntry(KeyType.GROUP, topic, create, created)
