"""Waiting in the tasks of requests: for a reply, and between the steps of long work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TypeVar

import trio

from triokafka.coordinator.runtime.reply import Reply

T = TypeVar("T")

checkpoint = trio.lowlevel.checkpoint
"""Let other tasks run."""


async def answer_to(reply: Reply[T]) -> T:
    """Wait for a reply, and return its value or raise its error. At most one task waits for a reply.

    There is no timeout: the operation that parks a request also sets a timer that answers it. Cancelling the wait
    changes nothing in the coordinator, which then discards the answer.
    """
    if not reply.is_set:
        arrived = trio.Event()
        reply.notify(arrived.set)
        await arrived.wait()
    return reply.value


async def run_steps(steps: Generator[None, None, T]) -> T:
    """Run all steps, with a checkpoint after each, and return the generator's result. Cancelling skips the remaining
    steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await checkpoint()


async def run_together(*tasks: Callable[[], Awaitable[None]]) -> None:
    """Run tasks until cancelled; an exception of one ends the others."""
    async with trio.open_nursery() as nursery:
        for task in tasks:
            nursery.start_soon(task)
