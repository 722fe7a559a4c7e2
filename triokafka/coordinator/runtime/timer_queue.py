"""The deadlines of one shard: a pure queue; the caller passes the current time.

Deadlines are soft state: they are never stored, and a shard sets them again when it loads.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple


class Moment(NamedTuple):
    """One instant on both clocks: seconds on the monotonic clock, and milliseconds since the Unix epoch."""

    now: float
    wall_ms: int


class TimerKey(NamedTuple):
    """The identity of a deadline. Scheduling a key again moves its deadline."""

    kind: str
    entity_id: str = ""
    part_id: str = ""


class TimerQueue:
    """Deadlines by key; each fires at most once.

    A deadline that moves earlier gets a second heap entry. One that moves later (a heartbeat) only changes the table;
    its stale heap entry is pushed back when it reaches the top. So no deadline is earlier than the top of the heap.
    """

    __slots__ = ("_deadlines", "_heap", "_sequence")

    def __init__(self) -> None:
        self._deadlines: dict[TimerKey, float] = {}
        self._heap: list[tuple[float, int, TimerKey]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, key: TimerKey) -> bool:
        return key in self._deadlines

    def deadline(self, key: TimerKey) -> float | None:
        """Return the deadline of ``key`` in seconds on the monotonic clock; None when it is not set."""
        return self._deadlines.get(key)

    def schedule(self, key: TimerKey, at: float) -> None:
        """Set or move the deadline of ``key`` to ``at``."""
        current = self._deadlines.get(key)
        self._deadlines[key] = at
        if current is None or at < current:
            self._push(at, key)

    def cancel(self, key: TimerKey) -> None:
        """Remove a deadline; does nothing when it is not set."""
        if self._deadlines.pop(key, None) is not None and len(self._heap) > 64 + 2 * len(self._deadlines):
            self._heap = []
            for other, at in self._deadlines.items():
                self._push(at, other)

    def clear(self) -> None:
        """Remove all deadlines."""
        self._deadlines.clear()
        self._heap.clear()

    def next_deadline(self) -> float | None:
        """Return the earliest deadline; None when none is set."""
        self._settle()
        return self._heap[0][0] if self._heap else None

    def is_due_before(self, at: float) -> bool:
        """Whether a deadline is earlier than ``at``."""
        if not self._heap or self._heap[0][0] >= at:
            return False
        self._settle()
        return bool(self._heap) and self._heap[0][0] < at

    def pop_due(self, now: float) -> TimerKey | None:
        """Remove and return the key of the earliest deadline at or before ``now``; None when there is none."""
        if not self._heap or self._heap[0][0] > now:
            return None
        self._settle()
        if not self._heap or self._heap[0][0] > now:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._deadlines[key]
        return key

    def _push(self, at: float, key: TimerKey) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (at, self._sequence, key))

    def _settle(self) -> None:
        """Bring a valid entry to the top of the heap: drop cancelled entries, push back those that moved later."""
        while self._heap:
            at, _, key = self._heap[0]
            deadline = self._deadlines.get(key)
            if deadline == at:
                return
            heapq.heappop(self._heap)
            if deadline is not None and deadline > at:
                self._push(deadline, key)
