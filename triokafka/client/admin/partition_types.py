"""Arguments and results of the admin client about partitions, brokers and their directories. Plain values."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from triokafka.structs import Node, TopicPartition


class ElectionType(enum.IntEnum):
    """The kinds of leader election, by Kafka's numbers."""

    PREFERRED = 0
    """The first replica of the partition, if it is in sync."""
    UNCLEAN = 1
    """Any replica that is alive, where none in sync is left."""


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A partition that moves: the brokers that hold it now, those that will, and those that will not."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ProducerDescription:
    """A producer as a partition's leader remembers it; -1 where nothing is known.

    ``last_timestamp`` is that of its last batch in ms, ``current_transaction_start_offset`` where its open transaction
    begins.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_transaction_start_offset: int


class TopicPartitionReplica(NamedTuple):
    """The copy of a partition on one broker."""

    topic: str
    partition: int
    broker_id: int


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """A replica in a data directory: bytes on disk, records that it is behind, and whether it is yet to take over."""

    size: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A data directory. ``error`` says why it cannot be used; sizes are bytes of its volume, -1 when unknown. One that
    is cordoned gets no new replicas."""

    error: Exception | None
    replicas: Mapping[TopicPartition, ReplicaInfo]
    total_bytes: int
    usable_bytes: int
    is_cordoned: bool = False


@dataclass(frozen=True, slots=True)
class FeatureRange:
    """Levels of a feature, both included."""

    min_version: int
    max_version: int


@dataclass(frozen=True, slots=True)
class FeatureDescription:
    """The finalized levels of the cluster's features, and those that the responding broker supports."""

    finalized: Mapping[str, FeatureRange]
    supported: Mapping[str, FeatureRange]
    epoch: int | None


class UpgradeType(enum.IntEnum):
    """The kinds of feature changes, by Kafka's numbers."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    """Only if nothing is lost."""
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """The level that a feature shall have; 0 switches it off."""

    level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A voter or observer, and how far it is. Times are wall-clock ms; None where the broker does not say."""

    replica_id: int
    directory_id: uuid.UUID | None
    log_end_offset: int
    last_fetch_timestamp: int | None
    last_caught_up_timestamp: int | None


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The metadata quorum. ``nodes`` are the voters with their listeners, where the broker says."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    nodes: Mapping[int, tuple[Node, ...]]
