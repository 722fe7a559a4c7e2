"""How long the shards of a coordinator took to load lately: a pure window over time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

LOAD_WINDOW: Final = 30.0
"""Seconds for which a load counts."""


@dataclass(slots=True)
class LoadTimes:
    """How long the shards took to load that have loaded lately."""

    _loads: deque[tuple[float, float]] = field(default_factory=deque)

    def record(self, now: float, seconds: float) -> None:
        """A shard has loaded."""
        self._forget(now)
        self._loads.append((now, seconds))

    def lately(self, now: float) -> list[float]:
        """Seconds that each load of the last `LOAD_WINDOW` took."""
        self._forget(now)
        return [seconds for _, seconds in self._loads]

    def _forget(self, now: float) -> None:
        while self._loads and self._loads[0][0] < now - LOAD_WINDOW:
            self._loads.popleft()
