"""Cooperative scheduling of long requests: a checkpoint after each portion of work."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterable
from typing import Final, TypeVar

import trio

T = TypeVar("T")
Item = TypeVar("Item")

BUDGET: Final = 50
"""Partitions that a request may process between two checkpoints: one or two milliseconds of work."""


BYTES_PER_ITEM: Final = 600
"""Text that is parsed counts as one item per so many bytes."""


class WorkBudget:
    """Counts the work of one request and runs a checkpoint after every `BUDGET` items, so that other tasks can run."""

    __slots__ = ("_spent",)

    def __init__(self) -> None:
        self._spent = 0

    async def spend(self, amount: int = 1) -> bool:
        """Add ``amount`` items of work (`BUDGET` for one expensive item); run a checkpoint if one is due.

        Returns whether it ran one.
        """
        self._spent += amount
        if self._spent < BUDGET:
            return False
        self._spent = 0
        await trio.lowlevel.checkpoint()
        return True


class _Portions(AsyncIterator[Item]):
    __slots__ = ("_items", "_spent")

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = iter(items)
        self._spent = 0

    async def __anext__(self) -> Item:
        if self._spent >= BUDGET:
            self._spent = 0
            await trio.lowlevel.checkpoint()
        self._spent += 1
        for item in self._items:
            return item
        raise StopAsyncIteration


def in_portions(items: Iterable[Item]) -> AsyncIterator[Item]:
    """Iterate over ``items`` with a checkpoint after every `BUDGET` of them."""
    return _Portions(items)


async def run_within_budget(steps: Generator[int, None, T]) -> T:
    """Run a generator that yields the amount of work of each step, and return its result.

    Runs a checkpoint after every `BUDGET` items. If cancelled, the remaining steps do not run.
    """
    budget = WorkBudget()
    while True:
        try:
            done = next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await budget.spend(done)
