"""How fast work in the background may read and write, all of its threads together."""

from __future__ import annotations


class Throttle:
    """Spreads bytes over time (``log.cleaner.io.max.bytes.per.second``). Times are seconds on the world's clock."""

    def __init__(self) -> None:
        self._free_at = 0.0

    def wait_for(self, moved_bytes: int, bytes_per_second: float, now: float) -> float:
        """How many seconds to rest now that so many bytes were moved; 0 when there is no need to."""
        self._free_at = max(self._free_at, now) + moved_bytes / bytes_per_second
        return self._free_at - now
