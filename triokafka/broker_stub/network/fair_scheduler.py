"""Whose turn it is, among connections that send requests ahead.

Trio runs all tasks that can run before it looks at the sockets again. Were those who send ahead all let go on at once,
a request that comes meanwhile would wait for each of them; so in every turn of the loop only as many of them go on as
others were served in the one before, and at least one. Nobody is overtaken by those who came later.
"""

from __future__ import annotations

from typing import Final

import trio

ALONE: Final = 1000
"""So many requests of those who send ahead, and none of another one, and they are among themselves: some 100 ms."""


class FairScheduler:
    """Lets connections go on one after the other."""

    __slots__ = ("_going", "_others", "_since_others", "_waiting")

    def __init__(self) -> None:
        self._others = 0
        self._since_others = ALONE
        self._going = 0  # those that go on in the next turn of the loop
        self._waiting = trio.lowlevel.ParkingLot()

    def count_other(self) -> None:
        """A connection that does not send ahead is served, after it had waited."""
        self._others += 1
        self._since_others = 0

    async def come_back(self) -> None:
        """One that sends ahead has waited for more, and has it now: wait for its turn, if there are others."""
        self._since_others += 1
        if self._since_others < ALONE:
            await self.step_back()

    async def step_back(self) -> None:
        """Wait for one's next turn; all other tasks that can run have had theirs then."""
        if self._going:
            await self._waiting.park()  # who ends its turn lets this one in, and has counted it
        else:
            self._going = 1
            try:
                await trio.lowlevel.checkpoint()
            except BaseException:
                self._let_in()
                raise
        self._let_in()

    def _let_in(self) -> None:
        self._going -= 1
        if not self._going:
            self._going = min(len(self._waiting), max(self._others, 1))
            self._others = 0
            self._waiting.unpark(count=self._going)
