"""The share of time that something was busy, over the last minute, from a total that only grows. Pure."""

from __future__ import annotations

from collections import deque
from typing import Final

_WINDOW: Final = 60.0
_LEAST: Final = 1.0
"""Seconds between two marks. Several readers at the same time would otherwise see windows of milliseconds."""


class RecentShare:
    """The growth of a total of busy seconds, as a share of the time in which it could grow.

    Readings are the only events. The window begins with the newest reading that is a minute old or older, and without
    one with the oldest reading or ``started_at``.
    """

    def __init__(self, started_at: float) -> None:
        self._marks: deque[tuple[float, float]] = deque([(started_at, 0.0)])

    def measure(self, busy_seconds: float, now: float, *, of: float = 1.0) -> float:
        """Return the busy share, 0 to 1, of ``of`` seconds per second."""
        marks = self._marks
        while len(marks) > 1 and marks[1][0] <= now - _WINDOW:
            marks.popleft()
        began_at, before = marks[0]
        if now - marks[-1][0] >= _LEAST:
            marks.append((now, busy_seconds))
        elapsed = (now - began_at) * of
        return min(1.0, max(0.0, (busy_seconds - before) / elapsed)) if elapsed > 0 else 0.0
