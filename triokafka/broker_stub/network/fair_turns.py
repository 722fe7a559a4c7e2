"""Whose turn it is, among connections that never wait for their bytes.

Trio runs all tasks that can run before it looks at the sockets again. Were those who send ahead all let go on at once,
a request that comes meanwhile would wait for each of them; so in every turn of the loop only as many of them go on as
others were served in the one before, and at least one. Nobody is overtaken by those who came later.
"""

from __future__ import annotations

import trio


class FairTurns:
    """Lets connections go on one after the other.

    ``others`` is counted up for every connection that was served after it had waited.
    """

    __slots__ = ("_going", "_waiting", "others")

    def __init__(self) -> None:
        self.others = 0
        self._going = 0  # those that go on in the next turn of the loop
        self._waiting = trio.lowlevel.ParkingLot()

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
            self._going = min(len(self._waiting), max(self.others, 1))
            self.others = 0
            self._waiting.unpark(count=self._going)
