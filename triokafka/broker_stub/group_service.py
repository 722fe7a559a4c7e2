"""The group coordinator of a broker, and what it is given: its log, its options, and what topics there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.config.options import ASSIGNORS
from triokafka.broker_stub.metadata import MetadataImage, ResourceType
from triokafka.broker_stub.metadata.image import EMPTY_CONFIGS
from triokafka.broker_stub.metadata.topic_names import GROUP_METADATA_TOPIC
from triokafka.broker_stub.replica.coordinator_log import ReplicatedCoordinatorLog
from triokafka.broker_stub.replica.replica_manager import ReplicaManager
from triokafka.coordinator.group.config import GroupCoordinatorConfig
from triokafka.coordinator.group.group_coordinator import GroupCoordinator
from triokafka.world import World


def group_coordinator(
    world: World, config: BrokerConfig, replicas: ReplicaManager, image: Callable[[], MetadataImage]
) -> GroupCoordinator:
    """A coordinator over the partitions of ``__consumer_offsets`` among these replicas."""
    log = ReplicatedCoordinatorLog(
        GROUP_METADATA_TOPIC,
        replicas,
        codec=config.offsets_topic_compression_codec,
        read_bytes=config.offsets_load_buffer_size,
    )
    return GroupCoordinator(
        world,
        log,
        ImageTopics(image),
        group_config(config),
        lambda group_id: image().configs.get((ResourceType.GROUP, group_id), EMPTY_CONFIGS),
    )


class ImageTopics:
    """Names, ids and sizes of topics in the newest image."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image

    @property
    def version(self) -> int:
        """Changes with the topics."""
        return self._image().offset

    def topic_id(self, name: str) -> UUID | None:
        """The id of a topic that there is."""
        topic = self._image().topics.get(name)
        return None if topic is None else topic.topic_id

    def topic_name(self, topic_id: UUID) -> str | None:
        """The name of a topic that there is."""
        topic = self._image().topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def names(self) -> Iterable[str]:
        """Of all topics."""
        return self._image().topics

    def partition_count(self, name: str) -> int:
        """0 for a topic that there is not."""
        topic = self._image().topics.get(name)
        return 0 if topic is None else len(topic.partitions)


def group_config(config: BrokerConfig) -> GroupCoordinatorConfig:
    """The coordinator's part of the broker's options."""
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
