"""Revoking and assigning partitions, in the order in which the rebalance listener must be called."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from triokafka.client.consumer.membership.rebalance_timing import RebalanceTiming
from triokafka.client.consumer.rebalance.listener_calls import ListenerCalls
from triokafka.client.consumer.subscription_state import SubscriptionState
from triokafka.structs import TopicPartition


class PartitionHandover:
    """Carries out changes of the assignment.

    Revoked partitions are dropped only after the listener's method has returned. ``on_assignment`` is called whenever
    the assignment has changed. ``listener`` is the user's rebalance listener.
    """

    def __init__(
        self, subscription: SubscriptionState, timing: RebalanceTiming, on_assignment: Callable[[], None]
    ) -> None:
        self.listener: object = None
        self.calls = ListenerCalls()
        self.timing = timing
        self._subscription = subscription
        self.assignment_changed = on_assignment
        self._revoking: tuple[TopicPartition, ...] | None = None
        self._is_lost = False

    @property
    def is_revoking(self) -> bool:
        """Whether `finish_revocation` must follow the listener's calls."""
        return self._revoking is not None

    def begin_revocation(self, partitions: tuple[TopicPartition, ...], *, lost: bool, call: bool = True) -> None:
        """Begin to revoke partitions: call the listener first, unless ``call`` is false.

        Args:
            partitions: the revoked partitions; the listener is called also if there are none.
            lost: whether they may have other owners already.
            call: whether to call the listener.
        """
        self._revoking, self._is_lost = partitions, lost
        self.timing.revoking()
        if call:
            self.calls.add(self.listener, _method(lost), partitions)

    def finish_revocation(self) -> tuple[TopicPartition, ...]:
        """Drop the partitions of the last `begin_revocation`, and return them."""
        revoking, self._revoking = self._revoking or (), None
        self._subscription.revoke(revoking)
        self.timing.dropped(revoking, lost=self._is_lost)
        self.assignment_changed()
        return revoking

    def take_over(self, wanted: Sequence[TopicPartition], added: tuple[TopicPartition, ...], *, keep: bool) -> None:
        """Assign exactly ``wanted``, and queue the listener's call for ``added``.

        With ``keep``, partitions that remain keep their state.
        """
        self._subscription.assign_from_group(wanted, keep=keep)
        self.calls.add(self.listener, "on_partitions_assigned", added)
        self.timing.assigned(added)
        self.assignment_changed()

    def abandon(self, *, lost: bool) -> None:
        """Drop all partitions, because the subscription ends; the next `ListenerCalls.drain` calls the listener."""
        held = self._subscription.assignment
        self._revoking = None
        self.timing.abandoned()
        if held:
            self.timing.dropped(held, lost=lost)
            self.calls.replace(self.listener, _method(lost), held)


def _method(lost: bool) -> str:
    return "on_partitions_lost" if lost else "on_partitions_revoked"
