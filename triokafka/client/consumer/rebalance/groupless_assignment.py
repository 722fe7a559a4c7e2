"""Assignment without a group: a consumer that subscribes but has no ``group_id`` reads every partition itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from triokafka.client.consumer.rebalance.partition_handover import PartitionHandover
from triokafka.client.consumer.subscription import SubscriptionState
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

    def subscription_changed(self) -> None:
        """Does nothing: `advance` reads the subscription itself."""

    def advance(self) -> bool:
        """Drop partitions that no longer exist, or take over new ones. Return False if there are none."""
        wanted = self._wanted()
        held = self._subscription.assignment
        gone = tuple(partition for partition in held if partition not in wanted)
        if gone:
            self._subscription.mark_going(gone)
            self._handover.give_up(gone, lost=False)
            return True
        added = tuple(partition for partition in wanted if partition not in held)
        if added:
            self._handover.take_over(tuple(wanted), added, keep=True)
        return bool(added)

    def _wanted(self) -> Mapping[TopicPartition, None]:
        wanted: dict[TopicPartition, None] = {}
        for topic in self._subscription.topics:
            known = self._network.cluster.topics.get(topic)
            if known is not None:
                wanted.update((TopicPartition(topic, number), None) for number in known.partitions)
        return wanted

    def gave_up(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Does nothing: no coordinator waits for them."""

    def abandon(self) -> None:
        """End the subscription."""
        self._handover.abandon(lost=False)
