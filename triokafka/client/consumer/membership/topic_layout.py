"""The input of the leader's assignor: partition counts of the topics, and the racks of the replicas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from triokafka.assignors.assignor import NO_RACKS, PartitionRacks
from triokafka.network.cluster import Cluster


class TopicLayout(NamedTuple):
    """Partition counts by topic, without unknown topics, and the racks if any member names its own."""

    counts: dict[str, int]
    racks: PartitionRacks = NO_RACKS


def layout_of(cluster: Cluster, topics: tuple[str, ...], rack_of: Mapping[int, str]) -> TopicLayout:
    """Return the layout of the topics in ``cluster``, with replicas in the racks of their brokers.

    Offline replicas count, too.
    """
    counts = {topic: count for topic in topics if (count := cluster.partition_count(topic))}
    if not rack_of:
        return TopicLayout(counts)
    racks = {
        topic: tuple(
            frozenset(rack_of[node_id] for node_id in partition.replicas if node_id in rack_of)
            for partition in cluster.topics[topic].partitions.values()
        )
        for topic in counts
    }
    return TopicLayout(counts, racks)


class TopicLayoutCache:
    """Computes the layout once per snapshot of the cluster, because every poll needs it.

    The metadata leaves out brokers that are down. Their last known rack counts: a broker's restart must not cause two
    rebalances (KIP-881).
    """

    def __init__(self) -> None:
        self._asked: tuple[tuple[str, ...], bool] | None = None
        self._cluster: Cluster | None = None
        self._rack_of: dict[int, str] = {}
        self._found = TopicLayout({})

    def of(self, cluster: Cluster, topics: tuple[str, ...], *, in_racks: bool) -> TopicLayout:
        """See `layout_of`."""
        if cluster is not self._cluster or self._asked != (topics, in_racks):
            self._cluster, self._asked = cluster, (topics, in_racks)
            for node in cluster.nodes.values():
                if node.rack:
                    self._rack_of[node.node_id] = node.rack
                else:
                    self._rack_of.pop(node.node_id, None)
            self._found = layout_of(cluster, topics, self._rack_of if in_racks else {})
        return self._found
