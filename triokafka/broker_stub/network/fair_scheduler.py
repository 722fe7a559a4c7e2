"""Fair scheduling among pipelining connections, which send requests before they receive the previous response.

Trio runs all runnable tasks before it polls the sockets again. If all pipelining connections ran in each iteration of
the event loop, a new request of another connection would wait for every one of them. So in each iteration only as many
pipelining connections run as other connections were served in the one before, and at least one. They run in the order
of arrival.
"""

from __future__ import annotations

from typing import Final

import trio

ALONE: Final = 1000
"""Number of successive requests of pipelining connections (about 100 ms) after which no other connection is active."""


class FairScheduler:
    """Limits how many pipelining connections run per iteration of the event loop."""

    __slots__ = ("_going", "_others", "_since_others", "_waiting")

    def __init__(self) -> None:
        self._others = 0
        self._since_others = ALONE
        self._going = 0  # pipelining connections that run in the next iteration
        self._waiting = trio.lowlevel.ParkingLot()

    def count_other(self) -> None:
        """Count a request of a connection that does not pipeline."""
        self._others += 1
        self._since_others = 0

    async def come_back(self) -> None:
        """Wait for the turn of a pipelining connection that has received more data, if other connections are active."""
        self._since_others += 1
        if self._since_others < ALONE:
            await self.step_back()

    async def step_back(self) -> None:
        """Wait for the connection's next turn. All other runnable tasks run before."""
        if self._going:
            await self._waiting.park()  # _let_in unparks this task and has counted it in _going
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
            if self._waiting:
                self._going = min(len(self._waiting), max(self._others, 1))
                self._waiting.unpark(count=self._going)
            self._others = 0
