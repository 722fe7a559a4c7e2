"""How long the calls of a producer took in sum: flushes, and the calls of transactions (KIP-447's metrics)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, Final

_NS: Final = 1e9


class CallTimes:
    """Seconds by call, as metrics in nanoseconds."""

    NAMES: ClassVar = ("flush", "txn-init", "txn-begin", "txn-send-offsets", "txn-commit", "txn-abort")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._seconds = dict.fromkeys(self.NAMES, 0.0)

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Add the time of the block, also if it raises."""
        since = self._now()
        try:
            yield
        finally:
            self.add(name, since)

    def add(self, name: str, since: float) -> None:
        """Add the time of a call that began at ``since``: `measure` without its cost."""
        self._seconds[name] += self._now() - since

    def reader(self, name: str) -> Callable[[], float]:
        """Return a function that returns the nanoseconds of a call."""
        return lambda: self._seconds[name] * _NS
