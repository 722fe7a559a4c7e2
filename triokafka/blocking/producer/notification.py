"""The marker for listeners that were called."""

from __future__ import annotations

import threading
from typing import Final


class Notification:
    """Replaces the listeners of settled records: they are being called now, or, when ``over``, were called."""

    __slots__ = ("_ended", "over")

    def __init__(self, *, over: bool = False) -> None:
        self.over = over
        self._ended: threading.Event | None = None

    def wait(self, lock: threading.Lock, timeout: float | None) -> None:
        """Wait until the listeners were called, at most ``timeout`` seconds."""
        with lock:
            if self.over:
                return
            ended = self._ended = self._ended or threading.Event()
        ended.wait(timeout)

    def end(self, lock: threading.Lock) -> None:
        """Note that the listeners were called, and wake the waiting threads."""
        with lock:
            self.over = True
            ended = self._ended
        if ended is not None:
            ended.set()


NOTIFIED: Final = Notification(over=True)
