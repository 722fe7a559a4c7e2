"""The broker's metadata publisher: applies every committed change of the metadata to the parts of this broker.

Partitions, coordinators, quotas and configuration follow the image. Nothing here waits or changes the metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from triokafka.broker_stub.backend import cleaner_config, move_rate
from triokafka.broker_stub.config.dynamic_config import DynamicBrokerConfig
from triokafka.broker_stub.log.cleaner.log_cleaner import LogCleaner
from triokafka.broker_stub.log.log_manager import LogManager
from triokafka.broker_stub.metadata import MetadataDelta, MetadataImage, ResourceType
from triokafka.broker_stub.metadata.cache import MetadataCache
from triokafka.broker_stub.metadata.effective_configuration import EffectiveConfiguration
from triokafka.broker_stub.metadata.topic_names import GROUP_METADATA_TOPIC
from triokafka.broker_stub.network.options import ip_connection_rates, socket_config
from triokafka.broker_stub.network.socket_server import SocketServer
from triokafka.broker_stub.replica.hosted_partitions import LeadershipChange
from triokafka.broker_stub.replica.replica_manager import ReplicaManager
from triokafka.broker_stub.request.quotas import ClientQuotas
from triokafka.structs import TopicPartition
from triokafka.world import World

if TYPE_CHECKING:  # imported when the first group is used: a broker starts without it
    from triokafka.coordinator.group.group_coordinator import GroupCoordinator

_LOAD_AT_ONCE_BYTES: Final = 65_536
"""Up to so many bytes of groups and offsets are loaded within the metadata change itself."""


class BrokerMetadataPublisher:
    """Keeps the parts of a broker in step with the image, with its logs, and with each other.

    Args:
        group_coordinator: returns the group coordinator, and makes it if necessary.
        has_group_coordinator: whether it has been made.
    """

    def __init__(
        self,
        world: World,
        *,
        config: DynamicBrokerConfig,
        configuration: EffectiveConfiguration,
        metadata: MetadataCache,
        logs: LogManager,
        cleaner: LogCleaner,
        replicas: ReplicaManager,
        quotas: ClientQuotas,
        sockets: SocketServer,
        group_coordinator: Callable[[], GroupCoordinator],
        has_group_coordinator: Callable[[], bool],
    ) -> None:
        self._world = world
        self._config = config
        self._configuration = configuration
        self._metadata = metadata
        self._logs = logs
        self._cleaner = cleaner
        self._replicas = replicas
        self._quotas = quotas
        self._sockets = sockets
        self._group_coordinator = group_coordinator
        self._has_group_coordinator = has_group_coordinator

    def metadata_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Partitions, logs, coordinators and configuration follow the image."""
        self._metadata.update(delta, image)
        if any(kind == ResourceType.BROKER for kind, _ in delta.changed_configs):
            self._reconfigure(image)
        if delta.client_quotas_changed:
            self._quotas.configure(image.client_quotas)
            self._sockets.limits.configure_ip_rates(ip_connection_rates(image.client_quotas))
        offsets = image.topics.get(GROUP_METADATA_TOPIC)
        if offsets is not None and GROUP_METADATA_TOPIC not in delta.base.topics:
            # The topic wins over the configuration; that it grows later must not move groups.
            self._group_coordinator().partitions = len(offsets.partitions)
        changes = self._replicas.apply(delta, image)
        if self._has_group_coordinator():
            self._groups_follow(changes, delta)

    def reopened(self, change: LeadershipChange) -> None:
        """A partition is online again: its coordinator takes the role that the image gave it meanwhile."""
        if change.topic_partition.topic == GROUP_METADATA_TOPIC:
            self._coordinate([change])

    def _groups_follow(self, changes: Sequence[LeadershipChange], delta: MetadataDelta) -> None:
        self._coordinate(changes)
        if delta.deleted_topics:
            deleted = {gone: topic.name for gone, topic in delta.deleted_topics.items()}
            self._group_coordinator().topics_deleted(deleted)

    def _coordinate(self, changes: Sequence[LeadershipChange]) -> None:
        """Load and unload the shards of the coordinator whose partitions changed their role."""
        coordinator = self._group_coordinator()
        unread_bytes, has_others_to_load = 0, coordinator.runtime.is_loading
        for change in changes:
            if change.topic_partition.topic == GROUP_METADATA_TOPIC:
                if change.leads:
                    coordinator.load(change.topic_partition.partition, change.leader_epoch)
                    unread_bytes += self._replicas.partition(change.topic_partition).log.size
                else:
                    coordinator.unload(change.topic_partition.partition)
        if unread_bytes <= _LOAD_AT_ONCE_BYTES and not has_others_to_load:
            # Before anybody asks: clients need not be told to come back later.
            coordinator.runtime.load_all()

    def _reconfigure(self, image: MetadataImage) -> None:
        config = self._configuration.broker_config(image)
        self._config.update(config)
        self._logs.defaults = config.topic_defaults
        self._cleaner.config = cleaner_config(config)
        self._logs.producer_expiration_ms = config.producer_id_expiration_ms
        self._logs.mover.bytes_per_second = move_rate(image, config.node_id)
        self._replicas.reconfigure_all(image)
        self._sockets.reconfigure(socket_config(config, self._world.available_memory()))

    def high_watermark_rose(self, topic_partition: TopicPartition, offset: int) -> None:
        """Records up to ``offset`` are committed: a coordinator may answer for them."""
        if topic_partition.topic == GROUP_METADATA_TOPIC:
            self._group_coordinator().high_watermark_changed(topic_partition.partition, offset)

    def logs_offline(self, topic_partitions: Sequence[TopicPartition], reason: str) -> None:
        """Logs cannot be used any more, as the backend says."""
        for topic, number in topic_partitions:
            if topic == GROUP_METADATA_TOPIC:
                self._group_coordinator().unload(number)
        self._replicas.logs_offline(topic_partitions, reason)
