"""Letting others in, while a request names very many things."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeVar

import trio

T = TypeVar("T")

AT_ONCE: Final = 50
"""Partitions that a request is worked on before others have their turn: a millisecond or two."""


class Turns:
    """Counts what was done, and gives others their turn after every `AT_ONCE` of it."""

    __slots__ = ("_done",)

    def __init__(self) -> None:
        self._done = 0

    async def did(self, amount: int = 1) -> None:
        """So much more was done, `AT_ONCE` for what is much work by itself. Waits only for the others' turn."""
        self._done += amount
        if self._done >= AT_ONCE:
            self._done = 0
            await trio.lowlevel.checkpoint()


async def in_turns(steps: Generator[int, None, T]) -> T:
    """Do all of a work that says after each step how much it was, and return what it leads to.

    Others have their turn in between, after every `AT_ONCE`. Cancelled, the rest is not done.
    """
    turns = Turns()
    while True:
        try:
            done = next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await turns.did(done)
