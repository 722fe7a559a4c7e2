"""Waiting for what another program does, for which no event exists."""

from __future__ import annotations

import time
from collections.abc import Callable

TIMEOUT = 60.0


def until(holds: Callable[[], bool], what: str, timeout: float = TIMEOUT) -> None:
    """Ask again until it holds; ``what`` says after ``timeout`` seconds what did not come to be."""
    give_up_at = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < give_up_at, what
        time.sleep(0.05)
