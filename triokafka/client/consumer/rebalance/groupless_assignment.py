"""Assignment without a group: a consumer that subscribes but has no ``group_id`` reads every partition itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from triokafka.client.consumer.rebalance.partition_handover import PartitionHandover
from triokafka.client.consumer.subscription_state import SubscriptionState
from triokafka.network.cluster import Cluster
from triokafka.network.network_client import NetworkClient
from triokafka.structs import TopicPartition


class GrouplessAssignment:
    """Keeps the assignment equal to all partitions of the subscribed topics."""

    is_settling: Final = False
    begins_to_join: Final = False

    def __init__(self, network: NetworkClient, subscription: SubscriptionState, handover: PartitionHandover) -> None:
        self._network = network
        self._subscription = subscription
        self._handover = handover
        self._settled_cluster: Cluster | None = None
        self._settled_subscription: tuple[tuple[str, ...], int] = ((), -1)

    def subscription_changed(self) -> None:
        """Does nothing: `advance` reads the subscription itself."""

    def advance(self) -> bool:
        """Drop partitions that no longer exist, or take over new ones. Return False if there are none."""
        subscription = self._subscription
        # `advance` is called in every poll, and the subscription may have very many partitions.
        cluster, state = self._network.cluster, (subscription.topics, subscription.generation)
        if cluster is self._settled_cluster and state == self._settled_subscription:
            return False
        wanted = self._wanted()
        gone = tuple(partition for partition in subscription.assignment if partition not in wanted)
        if gone:
            subscription.mark_revoking(gone)
            self._handover.begin_revocation(gone, lost=False)
            return True
        added = tuple(partition for partition in wanted if partition not in subscription)
        if added:
            self._handover.take_over(tuple(wanted), added, keep=True)
            return True
        self._settled_cluster, self._settled_subscription = cluster, state
        return False

    def _wanted(self) -> Mapping[TopicPartition, None]:
        wanted: dict[TopicPartition, None] = {}
        for topic in self._subscription.topics:
            known = self._network.cluster.topics.get(topic)
            if known is not None:
                wanted.update((TopicPartition(topic, number), None) for number in known.partitions)
        return wanted

    def revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Does nothing: no coordinator waits for them."""

    def abandon(self) -> None:
        """End the subscription."""
        self._handover.abandon(lost=False)
