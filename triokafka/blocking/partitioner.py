"""Partitioners as in ``kafka.partitioner``.

The two built-in ones stand for the SDK's own choice: murmur2 of the key as in Java, and one partition per batch for
records without key (KIP-480, KIP-794). Any other partitioner is called for every record.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Any, Protocol

from triokafka.records.kernel import murmur2

__all__ = ["DefaultPartitioner", "Partitioner", "StickyPartitioner", "murmur2"]


class Cluster(Protocol):
    """The cluster as a partitioner sees it."""

    def topics(self) -> set[str]:
        """Return the known topics."""

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partition numbers of a topic."""

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partition numbers that have a leader."""


class Partitioner(ABC):
    """Chooses the partition of a record whose sender gave none."""

    @abstractmethod
    def partition(
        self, topic: str, key: Any, serialized_key: Any, value: Any, serialized_value: Any, cluster: Cluster
    ) -> int:
        """Return a partition number. Called by the sending thread."""


class DefaultPartitioner(Partitioner):
    """By the hash of the key; random without a key. A `KafkaProducer` uses the SDK's own choice instead."""

    def partition(
        self, topic: str, key: Any, serialized_key: Any, value: Any, serialized_value: Any, cluster: Cluster
    ) -> int:
        """Return the partition of the key, or a random one."""
        everywhere = sorted(cluster.partitions_for_topic(topic) or ())
        if topic not in cluster.topics() or not everywhere:
            raise ValueError(f"Topic {topic} not found in ClusterMetadata")
        if serialized_key is not None:
            return everywhere[(murmur2(serialized_key) & 0x7FFFFFFF) % len(everywhere)]
        return _any_of(sorted(cluster.available_partitions_for_topic(topic) or ()) or everywhere)


class StickyPartitioner(DefaultPartitioner):
    """As `DefaultPartitioner`, but records without key stay on one partition until a batch is full."""

    def __init__(self) -> None:
        self._sticky: dict[str, int] = {}
        self._lock = threading.Lock()

    def partition(
        self, topic: str, key: Any, serialized_key: Any, value: Any, serialized_value: Any, cluster: Cluster
    ) -> int:
        """Return the partition of the key, or the present one."""
        if serialized_key is not None:
            return super().partition(topic, key, serialized_key, value, serialized_value, cluster)
        with self._lock:
            known = self._sticky.get(topic)
            available = cluster.available_partitions_for_topic(topic) or cluster.partitions_for_topic(topic) or set()
            if known is None or known not in available:
                known = self._sticky[topic] = super().partition(topic, None, None, value, serialized_value, cluster)
            return known

    def on_new_batch(self, topic: str, cluster: Cluster, prev_partition: int) -> None:
        """Choose another partition, because a batch for ``prev_partition`` is full."""
        with self._lock:
            if self._sticky.get(topic) == prev_partition:
                others = sorted((cluster.available_partitions_for_topic(topic) or set()) - {prev_partition})
                self._sticky[topic] = _any_of(others) if others else prev_partition


def _any_of(partitions: list[int]) -> int:
    import random

    return random.choice(partitions)
