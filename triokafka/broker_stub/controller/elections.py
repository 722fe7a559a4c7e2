"""Who leads a partition after brokers came or went: pure functions from an image to partition changes.

The rules are Kafka's: a leader is kept while it is in sync and alive, else the first assigned replica that is in sync
and alive leads; if nobody is in sync, the first that is known to miss nothing (an eligible leader replica); if there is
none, and the topic allows it, the first one alive, at the price of records; else nobody. The last member of an in-sync
set stays in it, or becomes an eligible leader where the cluster has that feature (a cluster that Kafka has formatted).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from triokafka.broker_stub.controller import features
from triokafka.broker_stub.controller.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from triokafka.broker_stub.log.config import LogConfig
from triokafka.protocol.stored.cluster_metadata import PartitionChangeRecord

TopicConfig = Callable[[str], LogConfig]
"""Gives the configuration that applies to a topic."""

NOBODY = -1
"""Stands for "no broker" where a broker id is expected."""


@dataclass(frozen=True, slots=True)
class LivenessChange:
    """Which broker is about to come or go.

    ``added`` may lead although the image still shows it fenced; ``removed`` may not although the image does not yet.
    """

    added: int = NOBODY
    removed: int = NOBODY

    def acceptable(self, image: MetadataImage, broker_id: int) -> bool:
        """Whether a broker may lead once the change is made."""
        if broker_id == self.removed:
            return False
        if broker_id == self.added:
            return True
        broker = image.brokers.get(broker_id)
        return broker is not None and broker.active


def partition_change(
    image: MetadataImage,
    topic: TopicImage,
    partition: PartitionImage,
    change: LivenessChange,
    topic_config: TopicConfig,
) -> PartitionChangeRecord | None:
    """The record for one partition, with only what changes in it; None when nothing does."""
    with_elr = image.features.get(features.ELIGIBLE_LEADER_REPLICAS, 0) > 0
    isr = tuple(broker_id for broker_id in partition.isr if broker_id != change.removed)
    if not isr and not with_elr:
        isr = partition.isr
    elr = partition.eligible_leader_replicas
    if with_elr:
        elr = tuple(broker_id for broker_id in dict.fromkeys((*elr, *partition.isr)) if broker_id not in isr)
    leader = partition.leader
    recovering = False
    if leader not in isr or not change.acceptable(image, leader):
        candidates = [broker_id for broker_id in partition.replicas if change.acceptable(image, broker_id)]
        leader = next((broker_id for broker_id in candidates if broker_id in (isr or elr)), NO_LEADER)
        if leader == NO_LEADER and candidates and topic_config(topic.name).unclean_leader_election_enable:
            leader, recovering = candidates[0], True
        if leader != NO_LEADER and leader not in isr:
            # It is all that is in sync: the others may lack records, or have some that it does not.
            isr = (leader,)
    elr = tuple(broker_id for broker_id in elr if broker_id not in isr)
    last_known = partition.last_known_elr
    if with_elr:
        if len(isr) >= min(topic_config(topic.name).min_insync_replicas, len(partition.replicas)):
            elr, last_known = (), ()
        elif not isr and partition.leader != NO_LEADER:
            last_known = (partition.leader,)
    record = PartitionChangeRecord(partition_id=partition.partition, topic_id=topic.topic_id)
    before = (partition.isr, partition.leader, partition.eligible_leader_replicas, partition.last_known_elr)
    if before == (isr, leader, elr, last_known):
        return None
    if isr != partition.isr:
        record.isr = list(isr)
    if leader != partition.leader:
        record.leader = leader
    if elr != partition.eligible_leader_replicas:
        record.eligible_leader_replicas = list(elr)
    if last_known != partition.last_known_elr:
        record.last_known_elr = list(last_known)
    if recovering:
        record.leader_recovery_state = 1
    return record


def broker_fenced(image: MetadataImage, broker_id: int, topic_config: TopicConfig) -> Iterator[PartitionChangeRecord]:
    """Changes because a broker goes: it leaves in-sync sets, and others lead what it led."""
    change = LivenessChange(removed=broker_id)
    for topic, partition in image.partitions():
        if broker_id in partition.isr or partition.leader == broker_id:
            record = partition_change(image, topic, partition, change, topic_config)
            if record is not None:
                yield record


def broker_unfenced(image: MetadataImage, broker_id: int, topic_config: TopicConfig) -> Iterator[PartitionChangeRecord]:
    """Changes because a broker comes: it leads what has no leader, where it may."""
    change = LivenessChange(added=broker_id)
    for topic, partition in image.partitions():
        if partition.leader == NO_LEADER:
            record = partition_change(image, topic, partition, change, topic_config)
            if record is not None:
                yield record
