"""The change of one partition: a pure function from an image and the wanted change to a record.

All changes of partitions use it: fenced and unfenced brokers, in-sync sets, reassignments, elections, directories.
`elections` chooses the leader. A replica is alive if its broker is active and its log directory online.

The last member of an in-sync set stays in it, or becomes an eligible leader where the cluster has that feature. A
reassignment is complete, in the same record, as soon as every replica of its target is in sync.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final
from uuid import UUID

from triokafka.broker_stub.controller.completed_reassignment import completed_reassignment
from triokafka.broker_stub.controller.elections import Election, next_leader
from triokafka.broker_stub.controller.eligible_leader_replicas import eligible_leader_replicas
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

NO_BROKER: Final = -1
"""Stands for "no broker" where a broker id is expected."""

RECOVERED: Final = 0
RECOVERING: Final = 1
"""A leader that was elected although it was not in sync has not yet made its log consistent."""


class LivenessChange(NamedTuple):
    """The broker that the change fences, unfences, or finds restarted.

    ``added`` may lead although the image still has it as fenced. ``removed`` leaves the in-sync set, and may not lead
    although the image does not have it as fenced yet; so does ``unclean``, which ended without a clean shutdown, may
    lack records, and therefore is not an eligible leader either.
    """

    added: int = NO_BROKER
    removed: int = NO_BROKER
    unclean: int = NO_BROKER

    def leaves(self, broker_id: int) -> bool:
        """Whether the change takes the broker out of in-sync sets."""
        return broker_id in (self.removed, self.unclean)

    def acceptable(self, image: MetadataImage, broker_id: int, directory: UUID) -> bool:
        """Whether a broker may lead a partition whose replica it has in ``directory``, after the change."""
        broker = image.brokers.get(broker_id)
        if broker is None or self.leaves(broker_id) or not (broker.active or broker_id == self.added):
            return False
        return broker.has_online(directory)


class Wanted(NamedTuple):
    """The wanted state of a partition; None means no change of the field. ``directories`` is by broker."""

    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    adding_replicas: tuple[int, ...] | None = None
    removing_replicas: tuple[int, ...] | None = None
    leader_recovery_state: int | None = None
    directories: Mapping[int, UUID] = MappingProxyType({})


_NOBODY_CHANGES: Final = LivenessChange()
_AS_IT_IS: Final = Wanted()


def effective_min_insync_replicas(topic: TopicImage, topic_config: TopicConfig) -> int:
    """Return ``min.insync.replicas`` of a topic, at most its replication factor, as partition 0 has it."""
    first = topic.partitions.get(0)
    configured = topic_config(topic.name).min_insync_replicas
    return configured if first is None else min(configured, len(first.replicas))


@dataclass(slots=True)
class _Target:
    """The state that the partition is to have; the steps of a change refine it in turn."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    leader: int
    recovery: int
    unclean: bool = False

    def elect(
        self, partition: PartitionImage, election: Election, alive: Callable[[int], bool], *, with_elr: bool
    ) -> None:
        """Choose the leader; one that is not in sync becomes the only in-sync replica."""
        leader, self.unclean = next_leader(
            partition.leader,
            election,
            alive,
            replicas=self.replicas,
            isr=self.isr,
            elr=self.elr,
            last_known_elr=self.last_known_elr if with_elr else (),
        )
        self.leader = leader
        if leader == partition.leader:
            return
        if self.unclean:
            # The others may lack records, or have records that the new leader lacks.
            self.isr, self.elr, self.recovery = (leader,), (), RECOVERING
        elif leader in self.elr:
            self.isr, self.elr = (leader,), tuple(replica for replica in self.elr if replica != leader)


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
    if election is Election.ONLINE and topic_config(topic.name).unclean_leader_election_enable:
        election = Election.UNCLEAN
    isr = partition.isr if wanted.isr is None else wanted.isr
    target = _Target(
        partition.replicas if wanted.replicas is None else wanted.replicas,
        tuple(replica for replica in isr if not liveness.leaves(replica)),
        partition.adding_replicas if wanted.adding_replicas is None else wanted.adding_replicas,
        partition.removing_replicas if wanted.removing_replicas is None else wanted.removing_replicas,
        partition.eligible_leader_replicas if with_elr else (),
        partition.last_known_elr,
        partition.leader,
        partition.leader_recovery_state,
    )
    completed = completed_reassignment(target.replicas, target.isr, target.removing)
    if completed is not None and (target.adding or target.removing):
        (target.replicas, target.isr), target.adding, target.removing = completed, (), ()
    if with_elr:
        target.elr = eligible_leader_replicas(
            partition,
            target.replicas,
            target.isr,
            min_insync_replicas=effective_min_insync_replicas(topic, topic_config),
            unclean=liveness.unclean,
        )
    target.elect(
        partition,
        election,
        lambda replica: (
            replica in target.replicas
            and liveness.acceptable(image, replica, wanted.directories.get(replica) or partition.directory_of(replica))
        ),
        with_elr=with_elr,
    )
    if not target.isr and not with_elr:
        target.isr = partition.isr
    if wanted.leader_recovery_state not in (None, partition.leader_recovery_state):
        target.recovery = wanted.leader_recovery_state
    return _record(image, topic, partition, target, wanted)


def _record(
    image: MetadataImage, topic: TopicImage, partition: PartitionImage, target: _Target, wanted: Wanted
) -> PartitionChangeRecord | None:
    record = PartitionChangeRecord(partition_id=partition.partition, topic_id=topic.topic_id)
    changed = _set_leader(record, partition, target, features.metadata_version(image.features))
    if features.has_eligible_leader_replicas(image):
        if record.leader == NO_LEADER and not partition.last_known_elr and partition.leader != NO_LEADER:
            target.last_known_elr = (partition.leader,)
        elif record.leader >= 0:
            target.last_known_elr = ()
    for name, before, now in (
        ("isr", partition.isr, target.isr),
        ("replicas", partition.replicas, target.replicas),
        ("adding_replicas", partition.adding_replicas, target.adding),
        ("removing_replicas", partition.removing_replicas, target.removing),
        ("eligible_leader_replicas", partition.eligible_leader_replicas, target.elr),
        ("last_known_elr", partition.last_known_elr, target.last_known_elr),
    ):
        if now != before:
            setattr(record, name, list(now))
            changed = True
    if features.assigns_directories(image):
        directories = [_directory(image, partition, wanted, broker_id) for broker_id in target.replicas]
        if directories != [partition.directory_of(broker_id) for broker_id in partition.replicas]:
            record.directories = directories
            changed = True
    if target.recovery != partition.leader_recovery_state:
        record.leader_recovery_state = target.recovery
        changed = True
    return record if changed else None


def _set_leader(
    record: PartitionChangeRecord, partition: PartitionImage, target: _Target, metadata_version: int
) -> bool:
    """Set the leader in the record if a new leader epoch begins; return whether it does.

    With fewer replicas a new epoch begins, so that the leader drops the removed ones. With a smaller in-sync set it
    does so before metadata.version 3.6, whose brokers need it.
    """
    shrinks = not set(partition.replicas) <= set(target.replicas) or (
        metadata_version < features.NO_EPOCH_ON_ISR_SHRINK and not set(partition.isr) <= set(target.isr)
    )
    if target.leader == partition.leader and not shrinks:
        return False
    record.leader = target.leader
    return True


def _directory(image: MetadataImage, partition: PartitionImage, wanted: Wanted, broker_id: int) -> UUID:
    if broker_id in wanted.directories:
        return wanted.directories[broker_id]
    if broker_id in partition.replicas:
        return partition.directory_of(broker_id)
    broker = image.brokers.get(broker_id)
    return UNASSIGNED_DIRECTORY if broker is None else broker.default_directory()
