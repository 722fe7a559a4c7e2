"""Repeat an operation, cancelled at its 1st, 2nd, … nth checkpoint, until it completes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

T = TypeVar("T")


class _CancelAfterStep(trio.abc.Instrument):
    def __init__(self, task: trio.lowlevel.Task, scope: trio.CancelScope, step: int) -> None:
        self._task = task
        self._scope = scope
        self._left = step

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._task:
            self._left -= 1
            if self._left == 0:
                self._scope.cancel()


async def cancelled_at_each_checkpoint(
    operation: Callable[[], Awaitable[T]], check: Callable[[], Awaitable[None]], *, limit: int = 100
) -> tuple[T, int]:
    """Run ``operation`` again and again, cancelled one checkpoint later each time, with ``check`` after each.

    Returns the result of the run that completed, and how often it was cancelled before.
    """
    for step in range(1, limit):
        done = False
        result: list[T] = []
        with trio.CancelScope() as scope:
            instrument = _CancelAfterStep(trio.lowlevel.current_task(), scope, step)
            trio.lowlevel.add_instrument(instrument)
            try:
                result.append(await operation())
                done = True
            finally:
                trio.lowlevel.remove_instrument(instrument)
        if done:
            return result[0], step - 1
        await check()
    raise AssertionError(f"not complete after {limit} checkpoints")
