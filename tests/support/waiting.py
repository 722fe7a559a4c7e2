"""Waiting for states that have no event: those of other programs, and of several programs together."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable

import trio

TIMEOUT = 60.0


def until(holds: Callable[[], bool], failure: str, timeout: float = TIMEOUT) -> None:
    """Repeat a check until it holds; fail with the message ``failure`` after ``timeout`` seconds."""
    give_up_at = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < give_up_at, failure
        time.sleep(0.05)


async def eventually(
    holds: Callable[[], object], failure: str = "the condition did not become true", *, seconds: float = 2 * TIMEOUT
) -> None:
    """Do the same in a task of Trio, in real or virtual time. The check may be a coroutine function."""
    with trio.move_on_after(seconds):
        while True:
            held = holds()
            if await held if inspect.isawaitable(held) else held:
                return
            await trio.sleep(0.05)
    raise AssertionError(failure)
