"""Giving partitions up and taking partitions over, in the order in which the rebalance listener must hear of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from triokafka.client.consumer.membership.rebalance_timing import RebalanceTiming
from triokafka.client.consumer.rebalance.listener_calls import ListenerCalls
from triokafka.client.consumer.subscription import SubscriptionState
from triokafka.structs import TopicPartition


class PartitionHandover:
    """Carries out changes of the assignment.

    Partitions that go are dropped only after the listener's method has returned. ``on_assignment`` is called whenever
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
        self._going: tuple[TopicPartition, ...] | None = None
        self._is_lost = False

    @property
    def is_giving_up(self) -> bool:
        """Whether `finish_giving_up` must follow once the listener's calls are made."""
        return self._going is not None

    def give_up(self, partitions: tuple[TopicPartition, ...], *, lost: bool, call: bool = True) -> None:
        """Begin to give partitions up: call the listener first, unless ``call`` is false.

        Args:
            partitions: the partitions to give up; the listener is called also when there are none.
            lost: whether they may have other owners already.
            call: whether the listener hears of it.
        """
        self._going, self._is_lost = partitions, lost
        self.timing.giving_up()
        if call:
            self.calls.add(self.listener, _method(lost), partitions)

    def finish_giving_up(self) -> tuple[TopicPartition, ...]:
        """Drop the partitions of the last `give_up`, and return them."""
        going, self._going = self._going or (), None
        self._subscription.revoke(going)
        self.timing.gone(going, lost=self._is_lost)
        self.assignment_changed()
        return going

    def take_over(self, wanted: Sequence[TopicPartition], added: tuple[TopicPartition, ...], *, keep: bool) -> None:
        """Assign exactly ``wanted``, and queue the listener's call for ``added``.

        With ``keep``, partitions that stay keep their state.
        """
        self._subscription.assign_from_group(wanted, keep=keep)
        self.calls.add(self.listener, "on_partitions_assigned", added)
        self.timing.assigned(added)
        self.assignment_changed()

    def abandon(self, *, lost: bool) -> None:
        """The subscription ends: all partitions go, and the next `ListenerCalls.drain` tells the listener."""
        held = self._subscription.assignment
        self._going = None
        self.timing.abandoned()
        if held:
            self.timing.gone(held, lost=lost)
            self.calls.replace(self.listener, _method(lost), held)


def _method(lost: bool) -> str:
    return "on_partitions_lost" if lost else "on_partitions_revoked"
