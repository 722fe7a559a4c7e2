"""What a broker does when it is told something: its partitions, coordinators and options follow the metadata image.

`ImageFollower` holds nothing of its own. Nothing here waits, and nothing changes the metadata.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from triokafka.broker_stub.backend import cleaner_config, move_rate
from triokafka.broker_stub.metadata import MetadataDelta, MetadataImage, ResourceType
from triokafka.broker_stub.network.options import ip_connection_rates, socket_config
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    from triokafka.broker_stub.broker import Broker


class ImageFollower:
    """Keeps the parts of a broker in step with the image, with its logs, and with each other."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def metadata_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Partitions, logs, coordinators and configuration follow the image."""
        broker = self._broker
        broker.metadata_cache.update(delta, image)
        if any(kind == ResourceType.BROKER for kind, _ in delta.changed_configs):
            self._reconfigure(image)
        if delta.client_quotas_changed:
            broker.quotas.configure(image.client_quotas)
            broker.sockets.limits.configure_ip_rates(ip_connection_rates(image.client_quotas))
        broker.coordinators.topics_created(delta, image)
        broker.coordinators.replicas_changed(broker.replicas.apply(delta, image), delta)

    def _reconfigure(self, image: MetadataImage) -> None:
        broker = self._broker
        config = broker.config = broker.configuration.broker_config(image)
        broker.logs.defaults = config.topic_defaults
        broker.cleaner.config = cleaner_config(config)
        broker.logs.producer_expiration_ms = config.producer_id_expiration_ms
        broker.logs.mover.bytes_per_second = move_rate(image, broker.node_id)
        broker.replicas.reconfigure_all(image)
        broker.sockets.reconfigure(socket_config(config, broker.world.available_memory()))

    def logs_offline(self, topic_partitions: Sequence[TopicPartition], reason: str) -> None:
        """Logs cannot be used any more, as the backend says."""
        self._broker.coordinators.logs_offline(topic_partitions)
        self._broker.replicas.logs_offline(topic_partitions, reason)
