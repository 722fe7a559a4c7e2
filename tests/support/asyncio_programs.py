"""Runs the asyncio programs of tests, on the loops of the standard library and of uvloop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds after which a program that should have ended fails."""


def run(program: Coroutine[Any, Any, T], *, loop: Callable[[], asyncio.AbstractEventLoop] | None = None) -> T:
    """Run a program to its end, at most for `PATIENCE`."""

    async def bounded() -> T:
        async with asyncio.timeout(PATIENCE):
            return await program

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(bounded())


async def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)
