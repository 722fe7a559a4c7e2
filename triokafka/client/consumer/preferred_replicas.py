"""Preferred read replicas: followers that leaders have named for single partitions (KIP-392)."""

from __future__ import annotations

from collections.abc import Container, Iterable

from triokafka.structs import TopicPartition


class PreferredReplicas:
    """The preferred replica of each partition, and when it expires. Times are seconds on the world's clock."""

    __slots__ = ("_replicas",)

    def __init__(self) -> None:
        self._replicas: dict[TopicPartition, tuple[int, float]] = {}

    def set(self, partition: TopicPartition, node_id: int, *, expires_at: float) -> None:
        """Read a partition from this replica until then."""
        self._replicas[partition] = (node_id, expires_at)

    def node_for(self, partition: TopicPartition) -> int | None:
        """Return the replica to read a partition from; None means its leader."""
        named = self._replicas.get(partition)
        return None if named is None else named[0]

    def remove(self, partition: TopicPartition) -> bool:
        """Read a partition from its leader again. Return whether that is a change."""
        return self._replicas.pop(partition, None) is not None

    def remove_node(self, node_id: int, partitions: Iterable[TopicPartition]) -> bool:
        """Read the partitions that prefer this broker from their leaders again.

        Returns whether there were any.
        """
        left = [partition for partition in partitions if self.node_for(partition) == node_id]
        for partition in left:
            del self._replicas[partition]
        return bool(left)

    def remove_expired(self, now: float, nodes: Container[int]) -> bool:
        """Drop replicas that have expired or are not among ``nodes``. Returns whether there were any."""
        if not self._replicas:
            return False
        left = [p for p, (node_id, expires_at) in self._replicas.items() if now >= expires_at or node_id not in nodes]
        for partition in left:
            del self._replicas[partition]
        return bool(left)
