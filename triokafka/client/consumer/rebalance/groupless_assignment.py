"""Assignment without a group: a consumer that subscribes but has no ``group_id`` reads every partition itself."""

from __future__ import annotations

from collections.abc import Callable

from triokafka.client.consumer.listener import PendingCallbacks
from triokafka.client.consumer.subscription import SubscriptionState
from triokafka.network.network_client import NetworkClient
from triokafka.structs import TopicPartition


class GrouplessAssignment:
    """Keeps the assignment equal to all partitions of the subscribed topics."""

    def __init__(
        self, network: NetworkClient, subscription: SubscriptionState, on_assignment: Callable[[], None]
    ) -> None:
        self.listener: object = None
        self.fresh_after = -1
        self._network = network
        self._subscription = subscription
        self._on_assignment = on_assignment
        self._going: tuple[TopicPartition, ...] = ()
        self._callbacks = PendingCallbacks()

    @property
    def settling(self) -> bool:
        """Nothing is ever given up for somebody else."""
        return False

    @property
    def telling(self) -> bool:
        """Whether the listener has still something to hear."""
        return bool(self._callbacks)

    async def step(self) -> None:
        """Take over partitions that are new, drop those that are gone. Waits for the listener only.

        If cancelled, the next call goes on from there.
        """
        if self._network.metadata.version <= self.fresh_after:
            return
        while True:
            await self._callbacks.drain()
            if self._going:
                self._subscription.revoke(self._going)
                self._going = ()
                self._on_assignment()
            elif not (self._subscription.uses_group and self._advance()):
                return

    def _advance(self) -> bool:
        """Go one step further; False when there is nothing to do now."""
        wanted = self._wanted()
        held = self._subscription.assignment
        gone = tuple(partition for partition in held if partition not in wanted)
        if gone:
            self._subscription.mark_going(gone)
            self._going = gone
            self._callbacks.add(self.listener, "on_partitions_revoked", gone)
            return True
        added = tuple(partition for partition in wanted if partition not in held)
        if added:
            self._subscription.assign_from_group(tuple(wanted), keep=True)
            self._callbacks.add(self.listener, "on_partitions_assigned", added)
            self._on_assignment()
        return bool(added)

    def _wanted(self) -> dict[TopicPartition, None]:
        cluster = self._network.cluster
        if self._subscription.pattern is not None:
            self._subscription.match(cluster.topics)
        wanted: dict[TopicPartition, None] = {}
        for topic in self._subscription.topics:
            known = cluster.topics.get(topic)
            if known is not None:
                wanted.update((TopicPartition(topic, number), None) for number in known.partitions)
        return wanted

    def abandon(self) -> None:
        """The subscription ends: what is held goes, the listener hears of it on the next `step` or `drain`."""
        held = self._subscription.assignment
        self._going = ()
        if held:
            self._callbacks.end(self.listener, "on_partitions_revoked", held)

    async def drain(self) -> None:
        """Tell the listener what it has not heard yet."""
        await self._callbacks.drain()
