"""Waiting for other programs that offer no event."""

from __future__ import annotations

import time
from collections.abc import Callable

TIMEOUT = 60.0


def until(holds: Callable[[], bool], failure: str, timeout: float = TIMEOUT) -> None:
    """Repeat a check until it holds; fail with the message ``failure`` after ``timeout`` seconds."""
    give_up_at = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < give_up_at, failure
        time.sleep(0.05)
