"""A rate limit for the reads and writes of all threads of a background task."""

from __future__ import annotations


class Throttle:
    """Limits bytes per second (``log.cleaner.io.max.bytes.per.second``). Times are seconds on the world's clock."""

    def __init__(self) -> None:
        self._free_at = 0.0

    def wait_for(self, moved_bytes: int, bytes_per_second: float, now: float) -> float:
        """Return the seconds to wait after moving ``moved_bytes``; 0 if the rate is below the limit."""
        self._free_at = max(self._free_at, now) + moved_bytes / bytes_per_second
        return self._free_at - now
