"""The change of one partition: a pure function from an image and the wanted change to a record.

All changes of partitions use it: fenced and unfenced brokers, in-sync sets, reassignments, elections. As in Kafka, a
leader stays while it is in sync and alive. Otherwise the next leader is, in this order: the first assigned replica that
is in sync and alive; the first eligible leader replica, which misses no records (KIP-966); if the topic or the caller
allows it, the first replica alive, which may lose records; none.

The last member of an in-sync set stays in it, or becomes an eligible leader where the cluster has that feature. A
reassignment is complete, in the same record, as soon as every replica that it adds is in sync.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.metadata import features
from triokafka.broker_stub.metadata.image import (
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from triokafka.named_tuple import NamedTuple
from triokafka.protocol.stored.cluster_metadata import PartitionChangeRecord

TopicConfig = Callable[[str], LogConfig]
"""Gives the configuration that applies to a topic."""

NOBODY: Final = -1
"""Stands for "no broker" where a broker id is expected."""

RECOVERED: Final = 0
RECOVERING: Final = 1
"""A leader that was elected although it was not in sync has not yet made its log consistent."""


class Election(enum.Enum):
    """Which leader is wanted."""

    ONLINE = "online"
    """Keep the current leader if possible, otherwise elect an in-sync replica."""
    PREFERRED = "preferred"
    """The first assigned replica, if it is in sync."""
    UNCLEAN = "unclean"
    """As ``ONLINE``, but if necessary elect a replica that is not in sync."""


class LivenessChange(NamedTuple):
    """The broker that the change fences or unfences.

    ``added`` may lead although the image still has it as fenced; ``removed`` may not lead although the image does not
    have it as fenced yet.
    """

    added: int = NOBODY
    removed: int = NOBODY

    def acceptable(self, image: MetadataImage, broker_id: int) -> bool:
        """Whether a broker may lead after the change."""
        if broker_id == self.removed:
            return False
        if broker_id == self.added:
            return True
        broker = image.brokers.get(broker_id)
        return broker is not None and broker.active


class Wanted(NamedTuple):
    """The wanted state of a partition; None means no change of the field."""

    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    adding_replicas: tuple[int, ...] | None = None
    removing_replicas: tuple[int, ...] | None = None
    leader_recovery_state: int | None = None


_NOBODY_CHANGES: Final = LivenessChange()
_AS_IT_IS: Final = Wanted()


@dataclass(slots=True)
class _Assignment:
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    def complete(self) -> None:
        """End a reassignment whose new replicas are all in sync; the old ones stay while they alone are in sync."""
        if not (self.adding or self.removing) or not set(self.adding) <= set(self.isr):
            return
        replicas = tuple(replica for replica in self.replicas if replica not in self.removing)
        isr = tuple(replica for replica in self.isr if replica not in self.removing)
        if replicas and isr:
            self.replicas, self.isr, self.adding, self.removing = replicas, isr, (), ()


def partition_change(
    image: MetadataImage,
    topic: TopicImage,
    partition: PartitionImage,
    topic_config: TopicConfig,
    *,
    liveness: LivenessChange = _NOBODY_CHANGES,
    wanted: Wanted = _AS_IT_IS,
    election: Election = Election.ONLINE,
) -> PartitionChangeRecord | None:
    """Return the record with the changed fields of one partition, or None without a change."""
    with_elr = features.has_eligible_leader_replicas(image)
    isr = tuple(
        broker_id
        for broker_id in (partition.isr if wanted.isr is None else wanted.isr)
        if broker_id != liveness.removed
    )
    if not isr and not with_elr:
        isr = partition.isr
    assignment = _Assignment(
        partition.replicas if wanted.replicas is None else wanted.replicas,
        isr,
        partition.adding_replicas if wanted.adding_replicas is None else wanted.adding_replicas,
        partition.removing_replicas if wanted.removing_replicas is None else wanted.removing_replicas,
    )
    assignment.complete()
    replicas, isr = assignment.replicas, assignment.isr
    elr = partition.eligible_leader_replicas
    if with_elr:
        left = dict.fromkeys((*elr, *partition.isr))
        elr = tuple(broker_id for broker_id in left if broker_id not in isr and broker_id in replicas)
    recovery = partition.leader_recovery_state
    if wanted.leader_recovery_state is not None:
        recovery = wanted.leader_recovery_state

    def may_lead(broker_id: int) -> bool:
        return broker_id in (isr or elr) and broker_id in replicas and liveness.acceptable(image, broker_id)

    leader = partition.leader
    if election is Election.PREFERRED and may_lead(replicas[0]):
        leader = replicas[0]
    elif leader not in isr or not may_lead(leader):
        leader = next((broker_id for broker_id in replicas if may_lead(broker_id)), NO_LEADER)
        alive = [broker_id for broker_id in replicas if liveness.acceptable(image, broker_id)]
        unclean = election is Election.UNCLEAN or topic_config(topic.name).unclean_leader_election_enable
        if leader == NO_LEADER and alive and unclean:
            leader, recovery = alive[0], RECOVERING
        if leader != NO_LEADER and leader not in isr:
            # The only in-sync replica: the others may lack records, or have records that it lacks.
            isr = (leader,)
    elr = tuple(broker_id for broker_id in elr if broker_id not in isr)
    last_known = partition.last_known_elr
    if with_elr:
        if len(isr) >= min(topic_config(topic.name).min_insync_replicas, len(replicas)):
            elr, last_known = (), ()
        elif not isr and partition.leader != NO_LEADER:
            last_known = (partition.leader,)
    record = PartitionChangeRecord(partition_id=partition.partition, topic_id=topic.topic_id)
    changed = False
    for name, before, now in (
        ("isr", partition.isr, isr),
        ("replicas", partition.replicas, replicas),
        ("adding_replicas", partition.adding_replicas, assignment.adding),
        ("removing_replicas", partition.removing_replicas, assignment.removing),
        ("eligible_leader_replicas", partition.eligible_leader_replicas, elr),
        ("last_known_elr", partition.last_known_elr, last_known),
    ):
        if now != before:
            setattr(record, name, list(now))
            changed = True
    if replicas != partition.replicas:
        record.directories = [_directory(image, partition, broker_id) for broker_id in replicas]
    if leader != partition.leader or not set(partition.replicas) <= set(replicas):
        # With fewer replicas, a new epoch begins, so that the leader drops the removed ones.
        record.leader = leader
        changed = True
    if recovery != partition.leader_recovery_state:
        record.leader_recovery_state = recovery
        changed = True
    return record if changed else None


def _directory(image: MetadataImage, partition: PartitionImage, broker_id: int) -> UUID:
    if broker_id in partition.replicas and len(partition.directories) == len(partition.replicas):
        return partition.directories[partition.replicas.index(broker_id)]
    broker = image.brokers.get(broker_id)
    return UNASSIGNED_DIRECTORY if broker is None else broker.default_directory()
