"""Other brokers that can lead a partition in place of this one."""

from __future__ import annotations

from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.structs import TopicPartition


def has_active_peer(image: MetadataImage, topic_partition: TopicPartition, node_id: int) -> bool:
    """Whether a broker other than ``node_id`` has an in-sync replica and is neither fenced nor shutting down."""
    state = image.partition(*topic_partition)
    peers = [] if state is None else [image.brokers.get(replica) for replica in state.isr if replica != node_id]
    return any(broker is not None and broker.active for broker in peers)
