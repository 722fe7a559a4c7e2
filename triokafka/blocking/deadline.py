"""One time limit for a call that waits several times."""

from __future__ import annotations

import time


class Deadline:
    """Counts down ``seconds`` from its construction; None never ends."""

    __slots__ = ("_at",)

    def __init__(self, seconds: float | None) -> None:
        self._at = None if seconds is None else time.monotonic() + seconds

    @property
    def left(self) -> float | None:
        """Return the seconds left, at least 0; None without a limit."""
        return None if self._at is None else max(0.0, self._at - time.monotonic())
