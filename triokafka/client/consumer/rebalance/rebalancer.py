"""Keeps the assignment up to date, in the task of the user who asks for records."""

from __future__ import annotations

from typing import Protocol

from triokafka.client.consumer.rebalance.partition_handover import PartitionHandover
from triokafka.client.consumer.subscription import SubscriptionState
from triokafka.network.network_client import NetworkClient
from triokafka.structs import TopicPartition


class AssignmentSource(Protocol):
    """The part that knows how the assignment comes about. Its methods wait for nothing."""

    @property
    def is_settling(self) -> bool:
        """Whether partitions are about to be given up, so that no records at all may be handed out."""

    def subscription_changed(self) -> None:
        """The subscription, or the metadata that a pattern applies to, may have changed."""

    def advance(self) -> bool:
        """Do the next thing that can be done now; False when there is nothing to do before something else happens."""

    def gave_up(self, partitions: tuple[TopicPartition, ...]) -> None:
        """The partitions of the last `PartitionHandover.give_up` were dropped."""

    def abandon(self) -> None:
        """The subscription ends: all partitions go."""


class Rebalancer:
    """Does a rebalance step by step. Nothing here waits for a broker.

    ``fresh_after`` is the version of the metadata that is too old to match patterns with: a stale list of topics would
    cause two rebalances in a row.
    """

    def __init__(
        self,
        network: NetworkClient,
        subscription: SubscriptionState,
        source: AssignmentSource,
        handover: PartitionHandover,
    ) -> None:
        self.fresh_after = -1
        self._network = network
        self._subscription = subscription
        self._source = source
        self._handover = handover
        self.abandon = source.abandon
        self.drain = handover.calls.drain

    @property
    def listener(self) -> object:
        """The user's rebalance listener."""
        return self._handover.listener

    @listener.setter
    def listener(self, listener: object) -> None:
        self._handover.listener = listener

    @property
    def settling(self) -> bool:
        """Whether partitions are about to be given up, so that nothing may be handed out."""
        return self._source.is_settling

    @property
    def has_calls(self) -> bool:
        """Whether calls of the listener are still to be made: it may yet seek."""
        return bool(self._handover.calls)

    async def step(self) -> None:
        """Do everything that can be done now. Afterwards the assignment may be used, whatever it is.

        Waits for the listener's methods only. If cancelled, the next call goes on from there.
        """
        version = self._network.metadata.version
        if version <= self.fresh_after:
            return
        if self._subscription.pattern is not None and version:
            self._subscription.match(self._network.cluster.topics)
        self._source.subscription_changed()
        while True:
            await self._handover.calls.drain()
            if self._handover.is_giving_up:
                self._source.gave_up(self._handover.finish_giving_up())
            elif not (self._subscription.uses_group and self._source.advance()):
                return
