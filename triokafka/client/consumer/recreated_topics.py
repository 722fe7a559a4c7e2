"""Assigned topics that were deleted and created again."""

from __future__ import annotations

from uuid import UUID

from triokafka.client.consumer.subscription_state import SubscriptionState
from triokafka.network.cluster import Cluster


class RecreatedTopics:
    """Notices by its id that an assigned topic is another one (KIP-516)."""

    def __init__(self, subscription: SubscriptionState) -> None:
        self._subscription = subscription
        self._ids: dict[str, tuple[UUID, ...]] = {}
        """The ids of the assigned topics, former ids first."""

    def find(self, cluster: Cluster) -> list[str]:
        """Return topics that were deleted and created again since their partitions were assigned.

        Positions of the old topic are meaningless in the new one. Call this whenever the metadata or the assignment has
        changed.
        """
        before, self._ids = self._ids, {}
        found = []
        for topic in {partition.topic: None for partition in self._subscription.assignment}:
            ids = before.get(topic, ())
            known = cluster.topics.get(topic)
            # A broker with old metadata may still report the former topic.
            if known is not None and known.topic_id.int and known.topic_id not in ids:
                if ids:
                    found.append(topic)
                ids += (known.topic_id,)
            if ids:
                self._ids[topic] = ids
        return found
