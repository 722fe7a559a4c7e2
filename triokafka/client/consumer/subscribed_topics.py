"""The subscribed topics in the metadata: missing, refused or recreated ones."""

from __future__ import annotations

import logging
from typing import Final
from uuid import UUID

from triokafka.client.consumer.failure_tracker import FailureTracker
from triokafka.client.consumer.subscription import Mode, SubscriptionState
from triokafka.errors import (
    KafkaError,
)
from triokafka.network.cluster import Cluster
from triokafka.network.network_client import NetworkClient

logger = logging.getLogger(__name__)

_FIRST_WITHOUT_CREATION: Final = 4


class SubscribedTopics:
    """Finds subscribed topics that the cluster refuses or does not have, and assigned topics that were recreated."""

    def __init__(self, network: NetworkClient, subscription: SubscriptionState, failures: FailureTracker) -> None:
        self._network = network
        self._subscription = subscription
        self._failures = failures
        self._missing: tuple[str, ...] = ()
        self._error: KafkaError | None = None
        self._ids: dict[str, tuple[UUID, ...]] = {}
        """The ids of the assigned topics, former ids first."""

    def take_error(self) -> KafkaError | None:
        """Return the error for a refused topic, once for each time that the metadata reports it."""
        error, self._error = self._error, None
        return error

    def look_at(self, cluster: Cluster) -> None:
        """Take new metadata."""
        topics = self._subscription.topics
        subscribed = frozenset(topics) if self._missing else frozenset()
        for what in self._missing:
            if what not in subscribed or what in cluster.topics:
                self._failures.succeeded(f"finding topic {what!r}")
        self._missing = ()
        if self._subscription.mode is not Mode.TOPICS:
            return
        missing: list[str] = []
        others = any(topic in cluster.topics for topic in topics)
        for topic in topics:
            error = self._network.metadata.error_for(topic) if topic not in cluster.topics else None
            if error is None:
                continue
            if not error.retriable:
                self._error = type(error)(f"{error}. {error.advice}".rstrip())
                continue
            missing.append(topic)
            # If there are other topics to read, a missing one may be created later.
            why = type(error)(f"the cluster does not have it. {error.advice}".rstrip())
            self._failures.failed(f"finding topic {topic!r}", why, self._network.world.now(), quietly=others)
        self._missing = tuple(missing)

    def recreated(self, cluster: Cluster) -> list[str]:
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
