"""Ends a demo that receives SIGTERM or Ctrl-C, together with all processes that it has started."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import trio

T = TypeVar("T")


@dataclass(frozen=True)
class StoppedDemo:
    """The demo received this signal."""

    signal: int


async def until_stopped(run: Callable[[str], Awaitable[T]], data_directory: str) -> T | StoppedDemo:
    """Return the result of ``run``, or the signal that cancelled it. Exceptions of ``run`` pass unchanged."""
    result: T | StoppedDemo | None = None
    failure: Exception | None = None

    async def stop(signals: AsyncIterator[int], running: trio.CancelScope) -> None:
        nonlocal result
        async for number in signals:
            result = StoppedDemo(number)
            running.cancel()
            return

    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop, signals, nursery.cancel_scope)
            try:
                result = await run(data_directory)
            except Exception as error:
                failure = error
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    assert result is not None
    return result
