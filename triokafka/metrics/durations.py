"""How long something took: number, sum and maximum since the start, and quantiles of the last times."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
_RECENT: Final = 512


class Durations:
    """Durations in seconds."""

    __slots__ = ("_recent", "count", "most", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.most = 0.0
        self._recent: deque[float] = deque(maxlen=_RECENT)

    def add(self, seconds: float) -> None:
        """Add a duration."""
        self.count += 1
        self.total += seconds
        self.most = max(self.most, seconds)
        self._recent.append(seconds)

    def quantiles(self) -> Mapping[float, float]:
        """Return the quantiles of the last 512 durations; all 0 without any."""
        ordered = sorted(self._recent) or [0.0]
        return {share: ordered[min(int(share * len(ordered)), len(ordered) - 1)] for share in QUANTILES}
