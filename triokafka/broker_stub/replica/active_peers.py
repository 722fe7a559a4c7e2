"""Other brokers that can lead a partition in place of this one."""

from __future__ import annotations

from collections.abc import Iterable

from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.structs import TopicPartition


def has_active_peer(image: MetadataImage, topic_partition: TopicPartition, node_id: int) -> bool:
    """Whether a broker other than ``node_id`` has an in-sync replica and is neither fenced nor shutting down."""
    state = image.partition(*topic_partition)
    return state is not None and any_active(image, [replica for replica in state.isr if replica != node_id])


def any_active(image: MetadataImage, broker_ids: Iterable[int]) -> bool:
    """Whether one of the brokers is neither fenced nor shutting down."""
    brokers = [image.brokers.get(broker_id) for broker_id in broker_ids]
    return any(broker is not None and broker.active for broker in brokers)
