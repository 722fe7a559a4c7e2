"""The metadata image: the state of the cluster as one immutable value.

An image is the replay of the committed metadata records up to ``offset``. It never changes: a reader takes one
reference and uses it for a whole operation. The next image (`MetadataDelta` builds it) shares every unchanged topic,
broker and configuration, so a change costs a shallow copy of the tables that it touches.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from triokafka.named_tuple import NamedTuple
from triokafka.protocol.configuration import ConfigResourceType
from triokafka.protocol.stored.cluster_metadata import PartitionChangeRecord, RegisterControllerRecord
from triokafka.protocol.stored.metadata_record import MetadataRecord
from triokafka.quota_precedence import EntityParts
from triokafka.security.acl import AclBinding
from triokafka.structs import TopicPartition

NO_LEADER: Final = -1
"""The leader of a partition that has none."""

_LEADER_UNCHANGED: Final = -2
_STATE_UNCHANGED: Final = -1

UNASSIGNED_DIRECTORY: Final = uuid.UUID(int=0)
"""The directory id of a replica whose broker has not reported its directory yet (KIP-858)."""
LOST_DIRECTORY: Final = uuid.UUID(int=1)
"""The directory id of a replica in a directory that its broker has lost, and whose id it does not know."""
MIGRATING_DIRECTORY: Final = uuid.UUID(int=2)
"""The directory id of a replica from before directories had ids."""
_RESERVED_DIRECTORIES: Final = 100


def is_reserved_directory(directory_id: uuid.UUID) -> bool:
    """Whether an id is one of those that no directory can have."""
    return directory_id.int < _RESERVED_DIRECTORIES


ConfigResource = tuple[int, str]
"""A `ConfigResourceType` value and a name; the name of the cluster-wide broker default is the empty string."""

QuotaEntity = EntityParts
"""The entity of a quota: sorted pairs of a type (``user``, ``client-id``, ``ip``) and a name, None for the default."""

SecurityKey = tuple[str, str, int]
"""The key of an ACL entry (``acl``, id, 0), SCRAM credential (``scram``, user, mechanism) or token (``token``, id, 0).
"""

EMPTY_CONFIGS: Final[Mapping[str, str]] = MappingProxyType({})


class PartitionImage(NamedTuple):
    """One partition: its replicas, its leader and its epochs.

    ``leader_epoch`` increases with every record that sets the leader, ``partition_epoch`` with every change.
    """

    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[uuid.UUID, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    @property
    def preferred_leader(self) -> int:
        """The first assigned replica."""
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def reassigning(self) -> bool:
        """Whether a reassignment of the partition is in progress."""
        return bool(self.adding_replicas or self.removing_replicas)

    def directory_of(self, broker_id: int) -> uuid.UUID:
        """The directory of a broker's replica; unassigned if the broker has none."""
        if len(self.directories) < len(self.replicas):
            return MIGRATING_DIRECTORY
        return self.directories[self.replicas.index(broker_id)] if broker_id in self.replicas else UNASSIGNED_DIRECTORY

    def after(self, record: PartitionChangeRecord) -> PartitionImage:
        """Return the partition after a change."""
        changes: dict[str, Any] = {"partition_epoch": self.partition_epoch + 1}
        if record.leader != _LEADER_UNCHANGED:
            # Setting the leader, even to the same broker, starts a new leader epoch.
            changes["leader"] = record.leader
            changes["leader_epoch"] = self.leader_epoch + 1
        if record.leader_recovery_state != _STATE_UNCHANGED:
            changes["leader_recovery_state"] = record.leader_recovery_state
        for name in (
            "isr",
            "replicas",
            "directories",
            "removing_replicas",
            "adding_replicas",
            "eligible_leader_replicas",
            "last_known_elr",
        ):
            value = getattr(record, name)
            if value is not None:
                changes[name] = tuple(value)
        return self._replace(**changes)


class TopicImage(NamedTuple):
    """One topic: its name, its id, and its partitions by number."""

    name: str
    topic_id: uuid.UUID
    partitions: Mapping[int, PartitionImage]


class EndpointImage(NamedTuple):
    """A listener of a broker: its name, the advertised host and port, the security protocol's number."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


class BrokerImage(NamedTuple):
    """One registered broker. ``broker_epoch`` is the offset of its registration; a fenced broker leads nothing."""

    broker_id: int
    broker_epoch: int
    incarnation_id: uuid.UUID
    endpoints: tuple[EndpointImage, ...] = ()
    features: Mapping[str, tuple[int, int]] = MappingProxyType({})
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    directories: tuple[uuid.UUID, ...] = ()
    cordoned_directories: tuple[uuid.UUID, ...] | None = None

    @property
    def active(self) -> bool:
        """Whether the broker may lead and join in-sync sets: it is neither fenced nor shutting down."""
        return not self.fenced and not self.in_controlled_shutdown

    @property
    def placeable(self) -> bool:
        """Whether new replicas may be placed on the broker: it stays, and not all its directories are cordoned."""
        cordoned = set(self.cordoned_directories or ())
        return not self.in_controlled_shutdown and not (cordoned and set(self.directories) <= cordoned)

    def has_online(self, directory_id: uuid.UUID) -> bool:
        """Whether a replica in a directory is accessible; replicas without a known directory count as accessible."""
        if directory_id in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
            return True
        return directory_id != LOST_DIRECTORY and (not self.directories or directory_id in self.directories)

    def default_directory(self) -> uuid.UUID:
        """The directory of new replicas if the broker has only one; otherwise unassigned."""
        if not self.directories:
            return MIGRATING_DIRECTORY
        return self.directories[0] if len(self.directories) == 1 else UNASSIGNED_DIRECTORY


class MetadataImage(NamedTuple):
    """The state of the cluster after the metadata record at ``offset`` (-1: nothing yet), written in ``epoch``."""

    offset: int = -1
    epoch: int = 0
    topics: Mapping[str, TopicImage] = MappingProxyType({})
    topics_by_id: Mapping[uuid.UUID, TopicImage] = MappingProxyType({})
    configs: Mapping[ConfigResource, Mapping[str, str]] = MappingProxyType({})
    brokers: Mapping[int, BrokerImage] = MappingProxyType({})
    controllers: Mapping[int, RegisterControllerRecord] = MappingProxyType({})
    """Registrations of Apache Kafka's controllers; kept for them."""
    features: Mapping[str, int] = MappingProxyType({})
    producer_ids: int = 0
    """The first producer id of the next block."""
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = MappingProxyType({})
    """The quotas of users and client ids, by entity and name."""
    security_records: Mapping[SecurityKey, MetadataRecord] = MappingProxyType({})
    """ACLs, SCRAM credentials and delegation tokens, as their records."""
    acls: Mapping[AclBinding, uuid.UUID] = MappingProxyType({})
    """The ids of the ACLs in `security_records`."""
    colliding_names: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """Topics whose name has a ``.`` or ``_``, by the name with every ``.`` replaced by ``_``."""

    def partition(self, topic: str, partition: int) -> PartitionImage | None:
        """One partition by name and number, or None."""
        found = self.topics.get(topic)
        return found.partitions.get(partition) if found else None

    def topic_configs(self, topic: str) -> Mapping[str, str]:
        """The overrides of one topic."""
        return self.configs.get((ConfigResourceType.TOPIC, topic), EMPTY_CONFIGS)

    def broker_configs(self, broker_id: int | None) -> Mapping[str, str]:
        """The dynamic configuration of one broker; with None the cluster-wide default."""
        name = "" if broker_id is None else str(broker_id)
        return self.configs.get((ConfigResourceType.BROKER, name), EMPTY_CONFIGS)

    def partitions(self) -> Iterator[tuple[TopicImage, PartitionImage]]:
        """Every partition of every topic."""
        for topic in self.topics.values():
            for partition in topic.partitions.values():
                yield topic, partition

    def replicas_on(self, broker_id: int) -> Iterator[TopicPartition]:
        """Every partition that has a replica on a broker."""
        for topic, partition in self.partitions():
            if broker_id in partition.replicas:
                yield TopicPartition(topic.name, partition.partition)


EMPTY_IMAGE: Final = MetadataImage()
"""The image before the first record."""
