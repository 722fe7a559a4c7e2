"""The wait for records: the loop in the user's task that drives a consumer until there is something to return."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

from triokafka.client.config import ConsumerOptions
from triokafka.client.consumer.call_guard import CallGuard, GuardedCall
from triokafka.client.consumer.failure_tracker import FailureTracker
from triokafka.client.consumer.fetch_collector import FetchCollector
from triokafka.client.consumer.membership.group_membership import GroupMembership
from triokafka.client.consumer.missing_topics import MissingTopics
from triokafka.client.consumer.position_finder import PositionFinder
from triokafka.client.consumer.rebalance.rebalancer import Rebalancer
from triokafka.client.consumer.subscription_state import SubscriptionState
from triokafka.errors import IllegalStateError, WakeupError, raisable_copy
from triokafka.world import World

T = TypeVar("T")


class ConsumerWakeup:
    """Wakes the caller that waits for records."""

    __slots__ = ("_changed",)

    def __init__(self) -> None:
        self._changed = trio.Event()

    def notify(self) -> None:
        """Wake the caller, because something has changed."""
        self._changed.set()

    def rearm(self) -> trio.Event:
        """Return the event that the next `notify` sets."""
        self._changed = trio.Event()
        return self._changed


class RecordWait:
    """Waits for one user at a time.

    ``membership`` returns the membership that decides the assignment, None without one. ``is_open`` returns whether the
    consumer is neither closing nor closed. ``check_usable`` raises if the consumer has failed or is closed.
    """

    def __init__(
        self,
        options: ConsumerOptions,
        world: World,
        subscription: SubscriptionState,
        collector: FetchCollector,
        positions: PositionFinder,
        missing_topics: MissingTopics,
        rebalancer: Rebalancer,
        failures: FailureTracker,
        wakeup: ConsumerWakeup,
        *,
        membership: Callable[[], GroupMembership | None],
        is_open: Callable[[], bool],
        check_usable: Callable[[], None],
    ) -> None:
        self._options = options
        self._world = world
        self._subscription = subscription
        self._collector = collector
        self._positions = positions
        self._missing_topics = missing_topics
        self._rebalancer = rebalancer
        self._failures = failures
        self._wakeup = wakeup
        self._membership = membership
        self._is_open = is_open
        self._check_usable = check_usable
        self._guard = CallGuard()
        self._stepping = False
        self._interrupted = False

    def interrupt(self) -> None:
        """Have the wait for records or a position raise `WakeupError`: the present one, or else the next."""
        self._interrupted = True
        self._wakeup.notify()

    def user(self, doing: str) -> GuardedCall:
        """Admit one task; the same task may enter again (from a listener). Raises `IllegalStateError`."""
        return GuardedCall(self._guard, doing)

    async def wait_for(self, take: Callable[[], T], timeout: float) -> T | None:
        """Take records, waiting at most ``timeout`` seconds for them; None after the time limit.

        All records returned before count as finished now. Everything that can be cancelled happens before ``take``;
        after it nothing waits and nothing fails, so that no record is lost.
        """
        self._check_usable()
        self._collector.asked += 1
        self._subscription.finish_all()
        await trio.lowlevel.checkpoint()
        return await self.wait_for_state(take, timeout, truthy=True)

    async def wait_for_state(self, look: Callable[[], T | None], timeout: float, *, truthy: bool = False) -> T | None:
        """Rebalance, raise errors and wait until ``look`` finds something, at most ``timeout`` seconds."""
        self._check_usable()
        membership = self._membership()
        give_up_at = self._world.now() + timeout
        patience = self._options.default_api_timeout_ms / 1000
        if membership is not None:
            membership.enter_call()
        try:
            while True:
                changed = self._wakeup.rearm()
                self._check_usable()
                self._raise_errors()
                if (self._subscription.uses_group or self._rebalancer.has_calls) and not self._stepping:
                    await self._step(membership)
                if self._failures:
                    # Also if there are records: the failing partition or broker may never bring any.
                    self._failures.raise_after(patience, self._world.now())
                if truthy and not self._rebalancer.has_calls:
                    self._check_reads_something()
                if not (truthy and self._rebalancer.settling):
                    found = look()
                    if found if truthy else found is not None:
                        return found
                    if truthy and self._collector.waiting is not None:
                        # A batch too large for the event loop; also after the time limit, or it would never be read.
                        waiting, self._collector.waiting = self._collector.waiting, None
                        await waiting.unpack(self._world)
                        continue
                now = self._world.now()
                if now >= give_up_at:
                    return None
                # A failure may begin while nothing else happens.
                until = min(give_up_at, now + patience, self._failures.next_deadline(patience))
                with trio.CancelScope(deadline=self._world.deadline(until)):
                    await changed.wait()
        finally:
            if membership is not None:
                membership.leave_call()

    def _check_reads_something(self) -> None:
        """Raise if no record can ever come, because there is neither subscription nor assignment."""
        if not self._subscription.uses_group and not self._subscription.assignment:
            raise IllegalStateError(
                "the consumer has no topics and no partitions to read: call subscribe() or assign() before asking for"
                " records"
            )

    async def _step(self, membership: GroupMembership | None) -> None:
        """Let the rebalancer do all possible steps, or make the listener's remaining calls.

        A listener is the user's code: its time counts as the user's.
        """
        self._stepping = True  # a call within a listener must not start over
        if membership is not None:
            membership.leave_call()
        try:
            if self._subscription.uses_group:
                await self._rebalancer.step()
            else:
                await self._rebalancer.drain()
        finally:
            self._stepping = False
            if membership is not None:
                membership.enter_call()

    def _raise_errors(self) -> None:
        if self._interrupted and not self._stepping and self._is_open():
            self._interrupted = False
            raise WakeupError("wakeup() was called")
        membership = self._membership()
        error = membership.take_error() if membership is not None else None
        if error is None and (self._stepping or not self._rebalancer.has_calls):
            error = self._positions.take_error()  # not while the listener may still seek
        error = error or self._missing_topics.take_error()
        if error is not None:
            # Not the stored object: its traceback refers to the frame of a running task, and `traceback.clear_frames`,
            # which `unittest` calls, would close that task's coroutine.
            raise raisable_copy(error)
