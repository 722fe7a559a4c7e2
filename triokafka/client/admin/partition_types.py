"""Arguments and results of the admin client about partitions, brokers and their directories. Plain values."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from triokafka.structs import Node, TopicPartition


class ElectionType(enum.IntEnum):
    """The kinds of leader election, by Kafka's numbers."""

    PREFERRED = 0
    """The first replica of the partition, if it is in sync."""
    UNCLEAN = 1
    """Any live replica, if no replica is in sync."""


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A reassignment in progress: the current replicas, the replicas to add, and the replicas to remove."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ProducerDescription:
    """The producer state that a partition's leader keeps; -1 for unknown values.

    ``last_timestamp`` is that of the last batch in ms, ``current_transaction_start_offset`` the first offset of the
    open transaction.
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
    """A replica in a data directory: bytes on disk, lag in records, and whether it is a future replica (KIP-113)."""

    size: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A data directory. ``error`` is why it cannot be used. Sizes are bytes of its volume, -1 if unknown. A cordoned
    directory gets no new replicas."""

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
    """Lower the level only if no metadata is lost."""
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """The new level of a feature; 0 disables the feature."""

    level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A voter or observer, and its log end offset. Times are wall-clock ms, None if the broker does not return them."""

    replica_id: int
    directory_id: uuid.UUID | None
    log_end_offset: int
    last_fetch_timestamp: int | None
    last_caught_up_timestamp: int | None


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The metadata quorum. ``nodes`` are the voters with their listeners, if the broker returns them; ``listeners`` has
    host and port of a voter's listeners by name.
    """

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    nodes: Mapping[int, tuple[Node, ...]]
    listeners: Mapping[int, Mapping[str, tuple[str, int]]] = field(default_factory=dict)
