"""Chooses the partitions of the next fetch from each broker. A plain object: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from triokafka.client.consumer.partition_state import PartitionState
from triokafka.client.consumer.preferred_replicas import PreferredReplicas
from triokafka.client.consumer.subscription_state import SubscriptionState
from triokafka.network.cluster import Cluster
from triokafka.network.fetch_sessions.fetch_session_handler import NO_TOPIC_ID, FetchTarget
from triokafka.structs import TopicPartition

_NEVER: Final = float("inf")


class FetchRound(NamedTuple):
    """The next fetch from one broker."""

    targets: dict[TopicPartition, FetchTarget]
    versions: dict[TopicPartition, int]
    crowded: bool
    """Whether partitions of this broker were left out because enough of their data is buffered."""
    retry_at: float
    """When a partition that is backing off may be fetched again."""


class FetchPlanner:
    """Chooses the partitions to fetch from each broker, in fair order. Times are seconds on the world's clock.

    Args:
        enough: buffered bytes of one partition from which on it is not fetched (``max_partition_fetch_bytes``).
        subscription: the assigned partitions and their positions.
        preferred: the followers to read from instead of leaders.
        cluster: returns the present metadata.
        fetch_offset: returns the offset behind a partition's buffered data, None while an error is buffered.
        buffered_bytes: returns how many bytes of a partition are buffered.
    """

    def __init__(
        self,
        enough: int,
        subscription: SubscriptionState,
        preferred: PreferredReplicas,
        cluster: Callable[[], Cluster],
        *,
        fetch_offset: Callable[[TopicPartition, PartitionState], int | None],
        buffered_bytes: Callable[[TopicPartition], int],
    ) -> None:
        self._enough = enough
        self._subscription = subscription
        self._fetch_offset = fetch_offset
        self._buffered_bytes = buffered_bytes
        self._preferred = preferred
        self._cluster = cluster
        self._order: dict[TopicPartition, None] = {}
        self._retry_at: dict[TopicPartition, float] = {}

    def node_for(self, partition: TopicPartition) -> int:
        """Return the preferred read replica (KIP-392), else the leader; -1 if there is none."""
        return self._node_in(self._cluster(), partition)

    def _node_in(self, cluster: Cluster, partition: TopicPartition) -> int:
        node_id = self._preferred.node_for(partition)
        return cluster.leader_for(partition) if node_id is None else node_id

    def served(self, partition: TopicPartition) -> None:
        """Note that the partition brought data: it comes last in the next round."""
        self._order[partition] = self._order.pop(partition, None)

    def back_off(self, partition: TopicPartition, until: float) -> None:
        """Leave the partition out until then."""
        self._retry_at[partition] = until

    def take_gone(self) -> list[TopicPartition]:
        """Return partitions that were backing off and are no longer assigned; each is returned once."""
        gone = [partition for partition in self._retry_at if partition not in self._subscription]
        for partition in gone:
            del self._retry_at[partition]
        return gone

    def _fair_order(self) -> dict[TopicPartition, None]:
        order = self._order
        if order.keys() != set(self._subscription.assignment):
            order = {partition: None for partition in order if partition in self._subscription}
            for partition in self._subscription.assignment:
                order.setdefault(partition)
            self._order = order
        return order

    def round(self, node_id: int, now: float) -> FetchRound:
        """Return the partitions to fetch from this broker."""
        cluster = self._cluster()
        targets: dict[TopicPartition, FetchTarget] = {}
        versions: dict[TopicPartition, int] = {}
        crowded = False
        retry_at = _NEVER
        for partition in self._fair_order():
            state = self._subscription.get(partition)
            if state is None or not state.fetchable or self._node_in(cluster, partition) != node_id:
                continue
            not_before = self._retry_at.get(partition, 0.0)
            if not_before > now:
                retry_at = min(retry_at, not_before)
                continue
            offset = self._fetch_offset(partition, state)
            buffered = self._buffered_bytes(partition)
            if offset is None or (buffered and buffered >= self._enough):
                crowded = True
                continue
            if state.stop_at is not None and offset >= state.stop_at:
                continue
            topic = cluster.topics.get(partition.topic)
            targets[partition] = FetchTarget(
                offset,
                self._enough,
                cluster.leader_epoch_for(partition),
                topic_id=topic.topic_id if topic is not None else NO_TOPIC_ID,
            )
            versions[partition] = state.version
        return FetchRound(targets, versions, crowded, retry_at)
