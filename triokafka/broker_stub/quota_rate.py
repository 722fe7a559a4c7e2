"""The rate that all quotas of the broker measure: bytes, processor time, connections, replication. Pure."""

from __future__ import annotations

from collections import deque


class QuotaRate:
    """An amount per second over the last ``samples`` windows of ``window`` seconds, the current one included.

    The options are ``quota.window.num`` and ``quota.window.size.seconds``, and their siblings of replication quotas.
    Times are seconds on the world's clock.
    """

    __slots__ = ("_samples", "_window", "_windows")

    def __init__(self, samples: int, window: float) -> None:
        self._samples = samples
        self._window = window
        self._windows: deque[list[float]] = deque()  # start and sum of each window with events

    def record(self, amount: float, now: float) -> None:
        """Add an amount; a negative amount undoes an earlier one."""
        if not self._windows or now - self._windows[-1][0] >= self._window:
            self._windows.append([now, 0.0])
        self._windows[-1][1] += amount

    def measure(self, now: float) -> tuple[float, float]:
        """Return the rate and the seconds that it covers: at least the length of all windows but one."""
        windows = self._windows
        while windows and now - windows[0][0] >= self._samples * self._window:
            windows.popleft()
        if not windows:
            return 0.0, self._window
        elapsed = now - windows[0][0]
        whole = int(elapsed / self._window)
        if whole < self._samples - 1:
            elapsed += (self._samples - 1 - whole) * self._window
        elapsed = max(elapsed, self._window)
        return sum(amount for _, amount in windows) / elapsed, elapsed

    def throttle_seconds(self, limit: float, now: float) -> float:
        """Return the seconds of silence after which the rate equals ``limit``; 0 if the rate is not above it.

        With rate O, limit T and covered time W, that is (O - T) / T * W. A limit of 0 is never reached: infinity.
        """
        observed, covered = self.measure(now)
        if observed <= limit:
            return 0.0
        return (observed - limit) / limit * covered if limit > 0 else float("inf")

    def is_over(self, now: float) -> bool:
        """Whether all recorded amounts have expired."""
        return not self._windows or now - self._windows[-1][0] >= self._samples * self._window
