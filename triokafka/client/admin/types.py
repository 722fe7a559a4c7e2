"""Arguments and results of the admin client. Plain values."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from triokafka.errors import raisable_copy
from triokafka.protocol.configuration import ConfigOperation, ConfigResourceType, ConfigSource
from triokafka.security.acl import AclOperation
from triokafka.structs import Node

K = TypeVar("K")
V = TypeVar("V")

BROKER_DEFAULT = -1
"""Partition count or replication factor: the default of the brokers (KIP-464)."""


class Results(Mapping[K, V], Generic[K, V]):
    """The results of a lookup, by item. Reading an item that failed raises its error; `errors` has all errors.

    ``whole`` is the common error of all failed items, if they failed together: no broker could be reached, or a broker
    refused the whole request.
    """

    def __init__(self, values: Mapping[K, V], errors: Mapping[K, Exception], whole: Exception | None = None) -> None:
        self._values = dict(values)
        self.errors = dict(errors)
        self.whole = whole

    def __getitem__(self, item: K) -> V:
        error = self.errors.get(item)
        if error is not None:
            raise raisable_copy(error)
        return self._values[item]

    def __iter__(self) -> Iterator[K]:
        yield from self._values
        yield from self.errors

    def __len__(self) -> int:
        return len(self._values) + len(self.errors)

    def __repr__(self) -> str:
        return f"Results({self._values!r}, errors={self.errors!r})"


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. ``assignments`` names the brokers of each partition, instead of the two counts."""

    name: str
    num_partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str | None] = field(default_factory=dict)
    assignments: Mapping[int, Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was created, or only validated. -1 for numbers that the broker does not return."""

    name: str
    topic_id: uuid.UUID
    num_partitions: int
    replication_factor: int
    configs: Mapping[str, ConfigEntry] | None = None
    """The topic's configuration, if the broker returns it (from 2.4 on)."""


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """More partitions for a topic: the new ``total``; ``assignments`` names the brokers of each new partition."""

    total: int
    assignments: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class TopicListing:
    """A topic of the cluster."""

    name: str
    topic_id: uuid.UUID
    is_internal: bool


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition and its brokers. ``leader`` is None without a leader; ``leader_epoch`` is -1 if unknown."""

    partition: int
    leader: Node | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    eligible_leader_replicas: tuple[int, ...] | None = None
    """Eligible leader replicas: outside ``isr``, but with all committed records (KIP-966); None if unknown."""
    last_known_elr: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic and its partitions, in order of their number."""

    name: str
    topic_id: uuid.UUID
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    authorized_operations: frozenset[AclOperation] | None = None
    """The operations that the caller may perform on the topic, if requested."""


@dataclass(frozen=True, slots=True)
class TopicPartitionPage:
    """Topics with some of their partitions. ``cursor``, topic and partition, is where the next page starts; None when
    this is the last."""

    topics: Mapping[str, TopicDescription]
    errors: Mapping[str, Exception]
    cursor: tuple[str, int] | None


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """A resource with a configuration. The name of a broker is its id; empty for the default of all brokers."""

    type: ConfigResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        """A topic's configuration."""
        return cls(ConfigResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int | None = None) -> ConfigResource:
        """A broker's configuration; without id the default for all brokers."""
        return cls(ConfigResourceType.BROKER, "" if node_id is None else str(node_id))

    @classmethod
    def broker_logger(cls, node_id: int) -> ConfigResource:
        """The log levels of a broker."""
        return cls(ConfigResourceType.BROKER_LOGGER, str(node_id))

    @classmethod
    def group(cls, group_id: str) -> ConfigResource:
        """A group's configuration."""
        return cls(ConfigResourceType.GROUP, group_id)

    @classmethod
    def client_metrics(cls, name: str) -> ConfigResource:
        """A subscription of client metrics."""
        return cls(ConfigResourceType.CLIENT_METRICS, name)


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A value that would apply if the ones before it were not set."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One configuration value. ``value`` is None if unset or not disclosed by the broker (``is_sensitive``);
    ``config_type`` is Kafka's number for the type of the value, 0 for unknown (brokers before 2.6)."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool = False
    is_sensitive: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None
    config_type: int = 0

    @property
    def is_default(self) -> bool:
        """Whether it is the default."""
        return self.source is ConfigSource.DEFAULT


@dataclass(frozen=True, slots=True)
class AlterConfig:
    """One change. ``APPEND`` and ``SUBTRACT`` work on lists; ``DELETE`` restores the default."""

    name: str
    value: str | None = None
    operation: ConfigOperation = ConfigOperation.SET


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The brokers of a cluster; ``controller`` is None if there is none at the moment."""

    cluster_id: str | None
    controller: Node | None
    nodes: tuple[Node, ...]
    fenced: frozenset[int] = frozenset()
    """The ids of fenced brokers: registered, but not in service. Empty unless they were requested."""
    authorized_operations: frozenset[AclOperation] | None = None
    """The operations that the caller may perform on the cluster, if requested."""
