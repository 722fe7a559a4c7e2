"""What the leader of a group deals: how many partitions its topics have, and in which racks the replicas are."""

from __future__ import annotations

from typing import NamedTuple

from triokafka.assignors.assignor import NO_RACKS, PartitionRacks
from triokafka.network.snapshot import Cluster


class Layout(NamedTuple):
    """Partition counts by topic, without topics that are not known, and racks where they are asked for."""

    counts: dict[str, int]
    racks: PartitionRacks = NO_RACKS


def layout_of(cluster: Cluster, topics: tuple[str, ...], *, in_racks: bool) -> Layout:
    """The topics as ``cluster`` has them. All replicas count, also those that are offline now: one that comes back is
    no reason to rebalance (KIP-881)."""
    counts = {topic: count for topic in topics if (count := cluster.partition_count(topic))}
    rack_of = {node.node_id: node.rack for node in cluster.nodes.values() if node.rack}
    if not in_racks or not rack_of:
        return Layout(counts)
    racks = {
        topic: tuple(
            frozenset(rack_of[node_id] for node_id in partition.replicas if node_id in rack_of)
            for partition in cluster.topics[topic].partitions.values()
        )
        for topic in counts
    }
    return Layout(counts, racks)


class LayoutOfLast:
    """Works out the layout once for each snapshot of the cluster: it is asked for at every poll."""

    def __init__(self) -> None:
        self._asked: tuple[tuple[str, ...], bool] | None = None
        self._cluster: Cluster | None = None
        self._found = Layout({})

    def of(self, cluster: Cluster, topics: tuple[str, ...], *, in_racks: bool) -> Layout:
        """See `layout_of`."""
        if cluster is not self._cluster or self._asked != (topics, in_racks):
            self._cluster, self._asked = cluster, (topics, in_racks)
            self._found = layout_of(cluster, topics, in_racks=in_racks)
        return self._found
