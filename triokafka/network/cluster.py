"""One picture of the cluster: brokers, topics, partitions and their leaders. Immutable; no I/O."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from triokafka.hooks import MetadataSummary
from triokafka.structs import Node, TopicPartition

_ZERO_ID: Final = uuid.UUID(int=0)
_LARGEST_PORT: Final = 65_535


def can_be_reached(node: Node) -> bool:
    """Whether a broker's id and address can be what they are said to be."""
    return node.node_id >= 0 and bool(node.host) and 0 < node.port <= _LARGEST_PORT


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """One partition as a broker described it. ``leader`` is -1 while there is none; ``leader_epoch`` -1 when
    unknown."""

    partition: int
    leader: int
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    error_code: int = 0


@dataclass(frozen=True)
class TopicMetadata:
    """One topic. ``partitions`` holds all of them, led or not, in order of their number."""

    name: str
    topic_id: uuid.UUID = _ZERO_ID
    is_internal: bool = False
    partitions: Mapping[int, PartitionMetadata] = field(default_factory=dict)

    @cached_property
    def available(self) -> tuple[int, ...]:
        """The partitions that have a leader."""
        return tuple(p.partition for p in self.partitions.values() if p.leader >= 0)


@dataclass(frozen=True)
class Cluster:
    """An immutable snapshot: take one and stick to it for one decision.

    ``changed`` are the topics of which it may say something else than the one before; None when that may be any.
    """

    nodes: Mapping[int, Node] = field(default_factory=dict)
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)
    topic_errors: Mapping[str, int] = field(default_factory=dict)
    controller_id: int = -1
    cluster_id: str | None = None
    changed: frozenset[str] | None = field(default=None, compare=False)

    def partition(self, topic_partition: TopicPartition) -> PartitionMetadata | None:
        """The partition, or None when the topic or the partition is not known."""
        topic = self.topics.get(topic_partition[0])
        return topic.partitions.get(topic_partition[1]) if topic is not None else None

    def leader_for(self, topic_partition: TopicPartition) -> int:
        """Node id of the leader; -1 when unknown or absent, or when its address is not known."""
        # As `partition`, without another call: this is asked for every batch of a producer, more than once.
        topic = self.topics.get(topic_partition[0])
        partition = topic.partitions.get(topic_partition[1]) if topic is not None else None
        if partition is None or partition.leader not in self.nodes:
            return -1
        return partition.leader

    def leader_epoch_for(self, topic_partition: TopicPartition) -> int:
        """The partition's leader epoch, -1 when unknown."""
        partition = self.partition(topic_partition)
        return partition.leader_epoch if partition is not None else -1

    def partition_count(self, topic: str) -> int | None:
        """Number of partitions, None when the topic is not known."""
        found = self.topics.get(topic)
        return len(found.partitions) if found is not None else None

    def ids_of(self, topics: Iterable[str]) -> tuple[dict[str, uuid.UUID], bool]:
        """The ids of those topics that have one, by name, and whether all have."""
        ids: dict[str, uuid.UUID] = {}
        complete = True
        for name in topics:
            topic = self.topics.get(name)
            if topic is None or not topic.topic_id.int:
                complete = False
            else:
                ids[name] = topic.topic_id
        return ids, complete

    @cached_property
    def topic_names(self) -> Mapping[uuid.UUID, str]:
        """Names of the topics by id, where ids are known."""
        return {topic.topic_id: name for name, topic in self.topics.items() if topic.topic_id.int}

    def summary(self, version: int) -> MetadataSummary:
        """The snapshot in numbers; ``version`` is that of the refresh it came from."""
        partitions = [p for topic in self.topics.values() for p in topic.partitions.values()]
        leaderless = sum(p.leader not in self.nodes for p in partitions)
        return MetadataSummary(
            version,
            len(self.nodes),
            len(self.topics),
            len(partitions),
            leaderless,
            self.controller_id,
            self.cluster_id,
        )
