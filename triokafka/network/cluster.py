"""A snapshot of the cluster: brokers, topics, partitions and their leaders. Immutable; no I/O."""

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
    """Return whether a broker has a valid id and address."""
    return node.node_id >= 0 and bool(node.host) and 0 < node.port <= _LARGEST_PORT


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """One partition in a broker's metadata. ``leader`` is -1 without a leader; ``leader_epoch`` is -1 if unknown."""

    partition: int
    leader: int
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    error_code: int = 0


@dataclass(frozen=True)
class TopicMetadata:
    """One topic. ``partitions`` has all of them, with or without leader, in order of their number."""

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
    """An immutable snapshot. Use one snapshot for each decision.

    ``changed`` are the topics that may differ from the previous snapshot; None if any may.
    """

    nodes: Mapping[int, Node] = field(default_factory=dict)
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)
    topic_errors: Mapping[str, int] = field(default_factory=dict)
    controller_id: int = -1
    cluster_id: str | None = None
    changed: frozenset[str] | None = field(default=None, compare=False)

    def partition(self, topic_partition: TopicPartition) -> PartitionMetadata | None:
        """Return the partition; None if the topic or the partition is unknown."""
        topic = self.topics.get(topic_partition[0])
        return topic.partitions.get(topic_partition[1]) if topic is not None else None

    def leader_for(self, topic_partition: TopicPartition) -> int:
        """Return the leader's node id; -1 if it is unknown or absent, or its address is unknown."""
        # As `partition`, but without another call: a producer needs this for every batch, more than once.
        topic = self.topics.get(topic_partition[0])
        partition = topic.partitions.get(topic_partition[1]) if topic is not None else None
        if partition is None or partition.leader not in self.nodes:
            return -1
        return partition.leader

    def leader_epoch_for(self, topic_partition: TopicPartition) -> int:
        """Return the partition's leader epoch, -1 if unknown."""
        partition = self.partition(topic_partition)
        return partition.leader_epoch if partition is not None else -1

    def partition_count(self, topic: str) -> int | None:
        """Return the number of partitions, None if the topic is unknown."""
        found = self.topics.get(topic)
        return len(found.partitions) if found is not None else None

    def ids_of(self, topics: Iterable[str]) -> tuple[dict[str, uuid.UUID], bool]:
        """Return the known ids of those topics by name, and whether all have one."""
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
        """Return the topic names by id, where ids are known."""
        return {topic.topic_id: name for name, topic in self.topics.items() if topic.topic_id.int}

    def summary(self, version: int) -> MetadataSummary:
        """The sizes of the snapshot; ``version`` is that of its refresh."""
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
