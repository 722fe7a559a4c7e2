"""Points in time and the deadlines of one shard: a pure queue that is told what time it is.

Nothing here waits or reads a clock. A deadline is soft state: it is never a record, and is set anew when a shard loads.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple


class Moment(NamedTuple):
    """One instant as both clocks show it: seconds on the monotonic clock, and milliseconds since the Unix epoch."""

    now: float
    wall_ms: int


class TimerKey(NamedTuple):
    """What a deadline is for. Setting the same key again moves the deadline."""

    kind: str
    group_id: str = ""
    member_id: str = ""


class TimerQueue:
    """Deadlines by key, each fired at most once.

    The heap holds at most one entry per deadline that moved earlier, plus one per key: a deadline that moves later (a
    heartbeat) only changes the table, and its heap entry is put back when it surfaces.
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
        """When ``key`` fires, in seconds on the monotonic clock; None when it is not set."""
        return self._deadlines.get(key)

    def schedule(self, key: TimerKey, at: float) -> None:
        """Let ``key`` fire at ``at``, instead of when it would have fired before."""
        current = self._deadlines.get(key)
        self._deadlines[key] = at
        if current is None or at < current:
            self._push(at, key)

    def cancel(self, key: TimerKey) -> None:
        """Forget a deadline; one that is not set is fine."""
        if self._deadlines.pop(key, None) is not None and len(self._heap) > 64 + 2 * len(self._deadlines):
            self._heap = []
            for other, at in self._deadlines.items():
                self._push(at, other)

    def clear(self) -> None:
        """Forget all deadlines."""
        self._deadlines.clear()
        self._heap.clear()

    def next_deadline(self) -> float | None:
        """The earliest point at which something may be due; None when nothing is set."""
        self._settle()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> TimerKey | None:
        """Take the earliest deadline that is not after ``now``; None when there is none."""
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
        """Bring an entry that still holds to the top: drop cancelled ones, put back those that moved later."""
        while self._heap:
            at, _, key = self._heap[0]
            deadline = self._deadlines.get(key)
            if deadline == at:
                return
            heapq.heappop(self._heap)
            if deadline is not None and deadline > at:
                self._push(deadline, key)
