"""Load times of a coordinator's shards over a sliding window. Pure: the caller passes the time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

LOAD_WINDOW: Final = 30.0
"""Length of the window in seconds."""


@dataclass(slots=True)
class LoadTimes:
    """The load times of the shards that finished loading within the last `LOAD_WINDOW` seconds."""

    _loads: deque[tuple[float, float]] = field(default_factory=deque)

    def record(self, now: float, seconds: float) -> None:
        """Record that a shard finished loading at ``now`` after ``seconds``."""
        self._forget(now)
        self._loads.append((now, seconds))

    def recent(self, now: float) -> list[float]:
        """Return the load times, in seconds, of the loads within the window."""
        self._forget(now)
        return [seconds for _, seconds in self._loads]

    def _forget(self, now: float) -> None:
        while self._loads and self._loads[0][0] < now - LOAD_WINDOW:
            self._loads.popleft()
