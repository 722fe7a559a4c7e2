"""Operations that wait for a condition or a time-out, and complete exactly once. Pure: events and times are arguments.

A handler that cannot respond yet puts a `DelayedOperation` into a `Purgatory` under the keys whose changes may satisfy
it. Code that changes the state behind a key calls `Purgatory.check_and_complete`. Either the condition or the time-out
completes the operation, whichever is first. `Expirer` is the only task here; it sleeps until the next timer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from typing import Final

import trio

from triokafka.broker_stub.purgatory.timing_wheel import TimerEntry, TimingWheel
from triokafka.world import World

PURGE_INTERVAL: Final = 1000


class DelayedOperation(ABC):
    """An operation that completes later.

    ``timeout_ms`` counts from the moment it is watched. Subclasses implement the condition (`try_complete`, which calls
    `force_complete` when it holds) and the action (`on_complete`).
    """

    __slots__ = ("_event", "_timer", "_wheel", "completed", "timeout_ms")

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self.completed = False
        self._timer: TimerEntry[DelayedOperation] | None = None
        self._wheel: TimingWheel[DelayedOperation] | None = None
        self._event: trio.Event | None = None

    @abstractmethod
    def try_complete(self) -> bool:
        """Complete the operation if its condition holds; return whether this call completed it."""

    def try_complete_after(self, key: Hashable) -> bool:
        """Like `try_complete`, after a change behind ``key`` alone: the other keys are as they were at the last try."""
        return self.try_complete()

    @abstractmethod
    def on_complete(self) -> None:
        """Run the action. Called exactly once, by the call that completes the operation."""

    def on_expiration(self) -> None:  # noqa: B027  # most have none
        """Do extra work when the time-out completed the operation."""

    def force_complete(self) -> bool:
        """Complete the operation regardless of its condition; return whether this call completed it."""
        if self.completed:
            return False
        self.completed = True
        if self._timer is not None and self._wheel is not None:
            self._wheel.cancel(self._timer)
        self.on_complete()
        if self._event is not None:
            self._event.set()
        return True

    async def wait(self) -> None:
        """Wait for the completion. If cancelled, the operation stays in the purgatory and completes without a
        waiter.
        """
        if not self.completed:
            if self._event is None:
                self._event = trio.Event()
            await self._event.wait()


class Purgatory:
    """The delayed operations of one kind. ``expirations`` counts those that timed out.

    Args:
        name: for metrics and logs.
        now_ms: the current time in milliseconds on the clock of `advance`.
        purge_interval: how many completed operations may stay in watch lists before all lists are purged.
    """

    def __init__(self, name: str, *, now_ms: int, purge_interval: int = PURGE_INTERVAL) -> None:
        self.name = name
        self._wheel: TimingWheel[DelayedOperation] = TimingWheel(now_ms)
        self._watchers: dict[Hashable, list[DelayedOperation]] = {}
        self._estimated_total = 0
        self._purge_interval = purge_interval
        self.expirations = 0
        self.earliest_changed: trio.Event | None = None

    @property
    def watched(self) -> int:
        """The number of entries in watch lists; an operation has one per key."""
        return sum(map(len, self._watchers.values()))

    @property
    def delayed(self) -> int:
        """The number of operations with an active timer."""
        return len(self._wheel)

    def try_complete_else_watch(
        self, operation: DelayedOperation, keys: Iterable[Hashable], now_ms: int, *, tried: bool = False
    ) -> bool:
        """Complete the operation now, or watch its keys until a check or its time-out completes it.

        Returns whether this call completed it. The condition is checked again once the operation is in the watch lists,
        so that a change in between is not lost. ``tried``: the caller has just seen that the condition does not hold.
        """
        if not tried and operation.try_complete():
            return True
        keys = list(keys)
        if not keys:
            raise ValueError("a delayed operation needs at least one key")
        for key in keys:
            if operation.completed:
                return False
            self._watchers.setdefault(key, []).append(operation)
        self._estimated_total += 1
        if operation.try_complete():
            return True
        if not operation.completed:
            before = self._wheel.next_expiry_ms()
            operation._wheel = self._wheel
            operation._timer = self._wheel.add(operation, now_ms + operation.timeout_ms)
            if operation._timer is None:  # due already
                return self._expire(operation)
            elif self.earliest_changed is not None:
                after = self._wheel.next_expiry_ms()
                if before is None or (after is not None and after < before):
                    self.earliest_changed.set()
        return False

    def watch_also(self, operation: DelayedOperation, key: Hashable) -> None:
        """Watch one more key for an operation that waits. Its condition is not checked before the key's next check."""
        if not operation.completed:
            self._watchers.setdefault(key, []).append(operation)

    def check_and_complete(self, key: Hashable) -> int:
        """Complete the operations under ``key`` whose conditions hold, after a change; return how many this call
        completed.
        """
        watched = self._watchers.get(key)
        if watched is None:
            return 0
        completed = 0
        # A completion may add an operation under the same key; check only the earlier ones.
        for operation in list(watched):
            if not operation.completed and operation.try_complete_after(key):
                completed += 1
        waiting = [operation for operation in self._watchers.get(key, ()) if not operation.completed]
        if waiting:
            self._watchers[key] = waiting
        else:
            self._watchers.pop(key, None)
        return completed

    def cancel_key(self, key: Hashable) -> list[DelayedOperation]:
        """Stop watching ``key`` and return the operations that were waiting on it; the caller completes them."""
        return [operation for operation in self._watchers.pop(key, ()) if not operation.completed]

    def next_expiry_ms(self) -> int | None:
        """Return the time for the next call of `advance`; None while no operation waits."""
        return self._wheel.next_expiry_ms()

    def advance(self, now_ms: int) -> int:
        """Complete timed-out operations, purge the watch lists if due, and return the number of completed
        operations.
        """
        expired = 0
        for operation in self._wheel.advance(now_ms):
            expired += self._expire(operation)
        if self._estimated_total - len(self._wheel) > self._purge_interval:
            self._estimated_total = len(self._wheel)
            self._purge()
        return expired

    def _expire(self, operation: DelayedOperation) -> bool:
        if not operation.force_complete():
            return False
        self.expirations += 1
        operation.on_expiration()
        return True

    def complete_all(self) -> None:
        """Complete all waiting operations, for a shutdown."""
        for key in list(self._watchers):
            for operation in self.cancel_key(key):
                operation.force_complete()

    def _purge(self) -> None:
        for key in list(self._watchers):
            waiting = [operation for operation in self._watchers[key] if not operation.completed]
            if waiting:
                self._watchers[key] = waiting
            else:
                del self._watchers[key]


class Expirer:
    """The task that advances the clock of one purgatory; it sleeps until the next timer."""

    def __init__(self, purgatory: Purgatory, world: World) -> None:
        self._purgatory = purgatory
        self._world = world

    async def run(self) -> None:
        """Expire operations until cancelled."""
        purgatory, world = self._purgatory, self._world
        while True:
            changed = purgatory.earliest_changed = trio.Event()
            expiry_ms = purgatory.next_expiry_ms()
            if expiry_ms is None:
                await changed.wait()
            else:
                with trio.CancelScope(deadline=world.deadline(expiry_ms / 1000)) as sleep:
                    await changed.wait()
                if sleep.cancelled_caught:
                    # The clock may read slightly less than the deadline that it has reached: never sleep for it twice.
                    purgatory.advance(max(monotonic_ms(world), expiry_ms))


def monotonic_ms(world: World) -> int:
    """Return the world's monotonic clock in whole milliseconds, the unit of purgatories."""
    return int(world.now() * 1000)
