"""Failover: the changes of all partitions when a broker or a log directory comes or goes.

Pure functions of an image. `partition_change` decides about the single partition, and `elections` about its leader.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from triokafka.broker_stub.controller.partition_change import LivenessChange, TopicConfig, partition_change
from triokafka.broker_stub.metadata.image import NO_LEADER, MetadataImage
from triokafka.protocol.stored.cluster_metadata import PartitionChangeRecord


def broker_fenced(image: MetadataImage, broker_id: int, topic_config: TopicConfig) -> Iterator[PartitionChangeRecord]:
    """Yield the changes when a broker is fenced: it leaves in-sync sets, and other brokers lead its partitions."""
    liveness = LivenessChange(removed=broker_id)
    for topic, partition in image.partitions():
        if broker_id in partition.isr or partition.leader == broker_id:
            record = partition_change(image, topic, partition, topic_config, liveness=liveness)
            if record is not None:
                yield record


def broker_ended_unclean(
    image: MetadataImage, broker_id: int, topic_config: TopicConfig
) -> Iterator[PartitionChangeRecord]:
    """Yield the changes when a broker ended without a clean shutdown (KIP-966).

    The end of its logs may be lost, so it is neither in sync nor an eligible leader until it has caught up again.
    """
    liveness = LivenessChange(unclean=broker_id)
    for topic, partition in image.partitions():
        if broker_id in partition.isr or broker_id in partition.eligible_leader_replicas:
            record = partition_change(image, topic, partition, topic_config, liveness=liveness)
            if record is not None:
                yield record


def directory_lost(
    image: MetadataImage, broker_id: int, directory_id: UUID, topic_config: TopicConfig
) -> Iterator[PartitionChangeRecord]:
    """Yield the changes when a log directory of a broker fails: its replicas there leave in-sync sets (KIP-858)."""
    liveness = LivenessChange(removed=broker_id)
    for topic, partition in image.partitions():
        if broker_id in partition.replicas and partition.directory_of(broker_id) == directory_id:
            record = partition_change(image, topic, partition, topic_config, liveness=liveness)
            if record is not None:
                yield record


def broker_unfenced(image: MetadataImage, broker_id: int, topic_config: TopicConfig) -> Iterator[PartitionChangeRecord]:
    """Yield the changes when a broker is unfenced: it leads partitions without a leader, if it may."""
    liveness = LivenessChange(added=broker_id)
    for topic, partition in image.partitions():
        if partition.leader == NO_LEADER:
            record = partition_change(image, topic, partition, topic_config, liveness=liveness)
            if record is not None:
                yield record
