"""The group coordinator of a broker: its log, its configuration, and the topics that it sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.config.options import ASSIGNORS
from triokafka.broker_stub.coordinators.image_topics import ImageTopics
from triokafka.broker_stub.coordinators.replicated_log import ReplicatedCoordinatorLog
from triokafka.broker_stub.metadata import MetadataImage
from triokafka.broker_stub.metadata.image import EMPTY_CONFIGS
from triokafka.broker_stub.replica.replica_manager import ReplicaManager
from triokafka.coordinator.group.config import GroupCoordinatorConfig
from triokafka.coordinator.group.group_coordinator import GroupCoordinator
from triokafka.protocol.configuration import ConfigResourceType
from triokafka.topic_names import GROUP_METADATA_TOPIC
from triokafka.world import World

_ASSIGNMENT_INTERVAL: Final = "consumer.assignment.interval.ms"
_BROKER_ASSIGNMENT_INTERVAL: Final = f"group.{_ASSIGNMENT_INTERVAL}"


def group_coordinator(
    world: World, config: BrokerConfig, replicas: ReplicaManager, image: Callable[[], MetadataImage]
) -> GroupCoordinator:
    """Return the coordinator over the partitions of ``__consumer_offsets`` that this broker leads."""
    log = ReplicatedCoordinatorLog(
        GROUP_METADATA_TOPIC,
        replicas,
        codec=config.offsets_topic_compression_codec,
        read_bytes=config.offsets_load_buffer_size,
    )
    settings = partial(group_settings, config.node_id, image)
    return GroupCoordinator(world, log, ImageTopics(image), group_config(config), settings)


def group_settings(node_id: int, image: Callable[[], MetadataImage], group_id: str) -> Mapping[str, str]:
    """Return the options of a group, and those of the broker's for all groups that changed since its start."""
    configs = image().configs
    own = configs.get((ConfigResourceType.GROUP, group_id), EMPTY_CONFIGS)
    if _ASSIGNMENT_INTERVAL in own:
        return own
    for broker in (str(node_id), ""):  # of this broker, of all brokers
        changed = configs.get((ConfigResourceType.BROKER, broker), EMPTY_CONFIGS).get(_BROKER_ASSIGNMENT_INTERVAL)
        if changed is not None:
            return {**own, _ASSIGNMENT_INTERVAL: changed}
    return own


def group_config(config: BrokerConfig) -> GroupCoordinatorConfig:
    """Return the coordinator's part of the broker configuration."""
    return GroupCoordinatorConfig(
        group_min_session_timeout_ms=config.group_min_session_timeout_ms,
        group_max_session_timeout_ms=config.group_max_session_timeout_ms,
        group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        group_max_size=config.group_max_size,
        group_max_promised_members=config.group_max_promised_members,
        group_consumer_session_timeout_ms=config.group_consumer_session_timeout_ms,
        group_consumer_heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
        group_consumer_max_size=config.group_consumer_max_size,
        group_consumer_assignors=tuple(ASSIGNORS[name] for name in config.group_consumer_assignors),
        group_consumer_migration_policy=config.group_consumer_migration_policy.lower(),
        group_consumer_regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
        group_consumer_assignment_interval_ms=config.group_consumer_assignment_interval_ms,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_minutes=config.offsets_retention_minutes,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        offset_commit_timeout_ms=config.offsets_commit_timeout_ms,
        offsets_topic_num_partitions=config.offsets_topic_num_partitions,
    )
