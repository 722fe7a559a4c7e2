"""Assignment without a group: a consumer that subscribes but has no ``group_id`` reads every partition itself."""

from __future__ import annotations

from collections.abc import Callable

from triokafka.client.consumer.listener import tell_listener
from triokafka.client.consumer.subscription import SubscriptionState
from triokafka.network.cluster import NetworkClient
from triokafka.structs import TopicPartition


class SoloAssigner:
    """Keeps the assignment equal to all partitions of the subscribed topics. Stands where a `Rebalancer` would."""

    def __init__(
        self, network: NetworkClient, subscription: SubscriptionState, on_assignment: Callable[[], None]
    ) -> None:
        self.listener: object = None
        self.fresh_after = -1
        self._network = network
        self._subscription = subscription
        self._on_assignment = on_assignment

    @property
    def settling(self) -> bool:
        """Nothing is ever given up for somebody else."""
        return False

    async def step(self) -> None:
        """Take over partitions that are new, drop those that are gone. Waits for the listener only."""
        if self._network.metadata.version <= self.fresh_after:
            return
        cluster = self._network.cluster
        if self._subscription.pattern is not None:
            self._subscription.match(cluster.topics)
        wanted: list[TopicPartition] = []
        for topic in self._subscription.topics:
            known = cluster.topics.get(topic)
            if known is not None:
                wanted.extend(TopicPartition(topic, number) for number in known.partitions)
        held = self._subscription.assignment
        if list(held) == wanted:
            return
        gone = [partition for partition in held if partition not in wanted]
        added = [partition for partition in wanted if partition not in held]
        if gone:
            await tell_listener(self.listener, "on_partitions_revoked", gone)
        self._subscription.assign_from_group(wanted, keep=True)
        self._on_assignment()
        await tell_listener(self.listener, "on_partitions_assigned", added)

    def abandon(self) -> None:
        """The subscription ends; nobody has to be told."""

    async def drain(self) -> None:
        """Nothing waits to be told."""
