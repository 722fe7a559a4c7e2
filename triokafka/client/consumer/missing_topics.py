"""Subscribed topics that the cluster does not have, or refuses."""

from __future__ import annotations

from triokafka.client.consumer.failure_tracker import FailureTracker
from triokafka.client.consumer.subscription_state import Mode, SubscriptionState
from triokafka.errors import KafkaError
from triokafka.network.cluster import Cluster
from triokafka.network.network_client import NetworkClient


class MissingTopics:
    """Finds subscribed topics that the cluster does not have, or refuses, in each new metadata."""

    def __init__(self, network: NetworkClient, subscription: SubscriptionState, failures: FailureTracker) -> None:
        self._network = network
        self._subscription = subscription
        self._failures = failures
        self._missing: tuple[str, ...] = ()
        self._error: KafkaError | None = None

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
