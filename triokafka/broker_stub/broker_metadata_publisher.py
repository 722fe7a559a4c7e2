"""What a broker does when it is told something: its partitions, coordinators and options follow the metadata image.

`ImageFollower` holds nothing of its own. Nothing here waits, and nothing changes the metadata.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from triokafka.broker_stub.backend import cleaner_config, move_rate
from triokafka.broker_stub.metadata import MetadataDelta, MetadataImage, ResourceType
from triokafka.broker_stub.metadata.topic_names import GROUP_METADATA_TOPIC
from triokafka.broker_stub.network.options import ip_connection_rates, socket_config
from triokafka.broker_stub.replica.hosted_partitions import LeadershipChange
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    from triokafka.broker_stub.broker import Broker

_LOAD_AT_ONCE_BYTES: Final = 65_536
"""Groups and offsets in so few bytes are read at once when this broker becomes their coordinator."""


class ImageFollower:
    """Keeps the parts of a broker in step with the image, with its logs, and with each other."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def metadata_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Partitions, logs, coordinators and configuration follow the image."""
        broker = self._broker
        if any(kind == ResourceType.BROKER for kind, _ in delta.changed_configs):
            self._reconfigure(image)
        if delta.client_quotas_changed:
            broker.quotas.configure(image.client_quotas)
            broker.sockets.limits.configure_ip_rates(ip_connection_rates(image.client_quotas))
        offsets = image.topics.get(GROUP_METADATA_TOPIC)
        if offsets is not None and GROUP_METADATA_TOPIC not in delta.base.topics:
            # The topic wins over the configuration; that it grows later must not move groups.
            broker.group_coordinator.partitions = len(offsets.partitions)
        changes = broker.replicas.apply(delta, image)
        if broker.has_group_coordinator:
            self._groups_follow(changes, delta)

    def reopened(self, change: LeadershipChange) -> None:
        """A partition is online again: its coordinator takes the role that the image gave it meanwhile."""
        if change.topic_partition.topic == GROUP_METADATA_TOPIC:
            self._coordinate([change])

    def _groups_follow(self, changes: Sequence[LeadershipChange], delta: MetadataDelta) -> None:
        self._coordinate(changes)
        if delta.deleted_topics:
            deleted = {gone: topic.name for gone, topic in delta.deleted_topics.items()}
            self._broker.group_coordinator.topics_deleted(deleted)

    def _coordinate(self, changes: Sequence[LeadershipChange]) -> None:
        """Load and unload the shards of the coordinator whose partitions changed their role."""
        coordinator = self._broker.group_coordinator
        unread_bytes, has_others_to_load = 0, coordinator.runtime.is_loading
        for change in changes:
            if change.topic_partition.topic == GROUP_METADATA_TOPIC:
                if change.leads:
                    coordinator.load(change.topic_partition.partition, change.leader_epoch)
                    unread_bytes += self._broker.replicas.partition(change.topic_partition).log.size
                else:
                    coordinator.unload(change.topic_partition.partition)
        if unread_bytes <= _LOAD_AT_ONCE_BYTES and not has_others_to_load:
            # Before anybody asks: clients need not be told to come back later.
            coordinator.runtime.load_all()

    def _reconfigure(self, image: MetadataImage) -> None:
        broker = self._broker
        config = broker.config = broker.configuration.broker_config(image)
        broker.logs.defaults = config.topic_defaults
        broker.cleaner.config = cleaner_config(config)
        broker.logs.producer_expiration_ms = config.producer_id_expiration_ms
        broker.logs.mover.bytes_per_second = move_rate(image, broker.node_id)
        broker.replicas.reconfigure_all(image)
        broker.sockets.reconfigure(socket_config(config, broker.world.available_memory()))

    def high_watermark_rose(self, topic_partition: TopicPartition, offset: int) -> None:
        """Records up to ``offset`` are committed: a coordinator may answer for them."""
        if topic_partition.topic == GROUP_METADATA_TOPIC:
            self._broker.group_coordinator.high_watermark_changed(topic_partition.partition, offset)

    def logs_offline(self, topic_partitions: list[TopicPartition], reason: str) -> None:
        """Logs cannot be used any more, as the backend says."""
        for topic, number in topic_partitions:
            if topic == GROUP_METADATA_TOPIC:
                self._broker.group_coordinator.unload(number)
        self._broker.replicas.logs_offline(topic_partitions, reason)
