"""Keeps the assignment up to date, in the user's task that polls for records."""

from __future__ import annotations

from typing import Protocol

from triokafka.client.consumer.rebalance.partition_handover import PartitionHandover
from triokafka.client.consumer.subscription_state import SubscriptionState
from triokafka.network.network_client import NetworkClient
from triokafka.structs import TopicPartition


class AssignmentSource(Protocol):
    """The part that decides the assignment. No method waits."""

    @property
    def is_settling(self) -> bool:
        """Whether partitions are about to be revoked, so that no records at all may be returned."""

    @property
    def begins_to_join(self) -> bool:
        """Whether the next step is the first of a rebalance in which the members send their topics anew."""

    def subscription_changed(self) -> None:
        """Note that the subscription, or the metadata for its pattern, may have changed."""

    def advance(self) -> bool:
        """Do the next possible step; return False if there is none before something else happens."""

    def revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Continue after the partitions of the last `PartitionHandover.begin_revocation` were dropped."""

    def abandon(self) -> None:
        """Drop all partitions, because the subscription ends."""


class Rebalancer:
    """Executes a rebalance step by step. Nothing here waits for a broker.

    ``fresh_after`` is a version of the metadata; patterns need a newer one. A member with an old list of topics would
    join once more as soon as it has the new one, so that two rebalances would come in a row. A list younger than
    ``fresh_for`` seconds needs no update.
    """

    def __init__(
        self,
        network: NetworkClient,
        subscription: SubscriptionState,
        source: AssignmentSource,
        handover: PartitionHandover,
        *,
        fresh_for: float,
    ) -> None:
        self.fresh_after = -1
        self._fresh_for = fresh_for
        self._has_asked = False
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
        """Whether partitions are about to be revoked, so that no records may be returned."""
        return self._source.is_settling

    @property
    def has_calls(self) -> bool:
        """Whether calls of the listener are pending: it may seek."""
        return bool(self._handover.calls)

    async def step(self) -> None:
        """Do all possible steps. Afterwards the assignment may be used.

        Waits only for the listener's methods. If cancelled, the next call continues from there.
        """
        version = self._network.metadata.version
        if version <= self.fresh_after:
            return
        if self._subscription.pattern is not None and version:
            self._subscription.match(self._network.cluster.topics)
        self._source.subscription_changed()
        while True:
            await self._handover.calls.drain()
            if self._handover.is_revoking:
                self._source.revoked(self._handover.finish_revocation())
            elif not self._subscription.uses_group or self._asks_for_topics() or not self._source.advance():
                return

    def _asks_for_topics(self) -> bool:
        """Request the present list of topics if a rebalance is about to begin with an old one. Once for each."""
        if self._subscription.pattern is None or not self._source.begins_to_join:
            self._has_asked = False
            return False
        updated_at = self._network.metadata.last_success
        if self._has_asked or (updated_at is not None and self._network.world.now() - updated_at < self._fresh_for):
            return False
        self._has_asked = True
        self.fresh_after = self._network.metadata.version
        self._network.request_metadata_update()
        return True
