"""Who leads a partition after brokers came or went: pure functions from an image to partition changes.

The rules are Kafka's: a leader is kept while it is in sync and alive, else the first assigned replica that is in sync
and alive leads; if nobody is in sync, the first that is known to miss nothing (an eligible leader replica, which a log
written by Kafka may have); if there is none, and the topic allows it, the first one alive, at the price of records;
else nobody. The last member of an in-sync set always stays in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from triokafka.broker_stub.controller.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from triokafka.protocol.stored.cluster_metadata import PartitionChangeRecord

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
    *,
    unclean: Callable[[str], bool],
) -> PartitionChangeRecord | None:
    """The record for one partition, with only what changes in it; None when nothing does.

    ``unclean`` says whether a topic allows a leader that is not in sync.
    """
    isr = tuple(broker_id for broker_id in partition.isr if broker_id != change.removed) or partition.isr
    leader = partition.leader
    recovering = False
    if leader not in isr or not change.acceptable(image, leader):
        candidates = [broker_id for broker_id in partition.replicas if change.acceptable(image, broker_id)]
        eligible = isr or partition.eligible_leader_replicas
        leader = next((broker_id for broker_id in candidates if broker_id in eligible), NO_LEADER)
        if leader != NO_LEADER and not isr:
            isr = (leader,)
        if leader == NO_LEADER and candidates and unclean(topic.name):
            # The new leader is all that is in sync: the others may have records that it does not.
            leader, recovering = candidates[0], True
            isr = (leader,)
    record = PartitionChangeRecord(partition_id=partition.partition, topic_id=topic.topic_id)
    changed = False
    if isr != partition.isr:
        record.isr = list(isr)
        changed = True
    if leader != partition.leader:
        record.leader = leader
        changed = True
    if leader in partition.eligible_leader_replicas:
        record.eligible_leader_replicas = [i for i in partition.eligible_leader_replicas if i != leader]
    if recovering:
        record.leader_recovery_state = 1
    return record if changed else None


def broker_fenced(
    image: MetadataImage, broker_id: int, *, unclean: Callable[[str], bool]
) -> Iterator[PartitionChangeRecord]:
    """Changes because a broker goes: it leaves in-sync sets, and others lead what it led."""
    change = LivenessChange(removed=broker_id)
    for topic, partition in image.partitions():
        if broker_id in partition.isr or partition.leader == broker_id:
            record = partition_change(image, topic, partition, change, unclean=unclean)
            if record is not None:
                yield record


def broker_unfenced(
    image: MetadataImage, broker_id: int, *, unclean: Callable[[str], bool]
) -> Iterator[PartitionChangeRecord]:
    """Changes because a broker comes: it leads what has no leader, where it may."""
    change = LivenessChange(added=broker_id)
    for topic, partition in image.partitions():
        if partition.leader == NO_LEADER:
            record = partition_change(image, topic, partition, change, unclean=unclean)
            if record is not None:
                yield record
