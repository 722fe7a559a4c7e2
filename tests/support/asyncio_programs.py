"""Runs the asyncio programs of tests, on the loops of the standard library and of uvloop."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
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


async def cancelled_at(suspension: int, program: Coroutine[Any, Any, Any]) -> bool:
    """Run the program in a task that is cancelled at its ``suspension``-th wait, counted from 1.

    Return whether it reached that wait. Errors other than the cancellation are raised.
    """
    reached = False

    @types.coroutine
    def stepped() -> Generator[Any, Any, None]:
        nonlocal reached
        number, step, argument = 0, program.send, None
        while True:
            try:
                awaited = step(argument)
            except StopIteration:
                return
            number += 1
            if number == suspension:
                reached = True
                asyncio.get_running_loop().call_soon(task.cancel)
            step = program.send
            try:
                argument = yield awaited
            except BaseException as error:
                step, argument = program.throw, error

    async def run_it() -> None:
        await stepped()

    task = asyncio.create_task(run_it())
    try:
        await task
    except asyncio.CancelledError:
        pass
    return reached
