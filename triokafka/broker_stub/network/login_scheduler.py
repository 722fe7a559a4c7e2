"""Turns of connections that have not logged in: their handshakes and SASL tokens never crowd out other work.

Trio runs all runnable tasks before it polls the sockets again. If thousands of peers sent a token at once, every other
connection would wait until the broker has evaluated all of them. So in each iteration of the event loop at most
`AT_ONCE` of these connections run. Addresses take turns, and connections of one address run in the order of arrival, so
that a peer that opens thousands of connections delays its own address most. Addresses whose logins failed lately run
after all others; one place of each iteration is theirs, so that they never starve.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import trio

AT_ONCE: Final = 8
"""Steps of handshakes and logins in one iteration of the event loop: some milliseconds, for which others wait."""
_SUSPECT_SECONDS: Final = 10.0
"""How long an address counts as suspect after a failed login."""
_MOST_SUSPECTS: Final = 10_000


class LoginScheduler:
    """Limits the work for connections that have not logged in."""

    def __init__(self) -> None:
        self._going = 0  # connections that run in the next iteration
        self._waiting = _Ring()
        self._waiting_suspects = _Ring()
        self._suspects: OrderedDict[str, float] = OrderedDict()  # when each address stops being suspect

    def failed(self, address: str, now: float) -> None:
        """Note that a login from ``address`` failed. ``now`` is in seconds on the world's clock."""
        self._suspects.pop(address, None)
        self._suspects[address] = now + _SUSPECT_SECONDS
        if len(self._suspects) > _MOST_SUSPECTS:
            self._suspects.popitem(last=False)

    def is_suspect(self, address: str, now: float) -> bool:
        """Whether a login from ``address`` failed lately."""
        until = self._suspects.get(address)
        if until is None or now < until:
            return until is not None
        del self._suspects[address]
        return False

    async def take(self, address: str, now: float) -> None:
        """Wait for the next turn of a connection from ``address``. If cancelled, the connection has no turn."""
        if self._going:
            ring = self._waiting_suspects if self.is_suspect(address, now) else self._waiting
            await ring.park(address)  # _let_in unparks this task and has counted it in _going
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
        if self._going:
            return
        going = int(self._waiting_suspects.unpark_one())
        while going < AT_ONCE and self._waiting.unpark_one():
            going += 1
        while going < AT_ONCE and self._waiting_suspects.unpark_one():
            going += 1
        self._going = going


class _Ring:
    """Waiting tasks by address; addresses take turns."""

    def __init__(self) -> None:
        self._lots: OrderedDict[str, trio.lowlevel.ParkingLot] = OrderedDict()

    async def park(self, address: str) -> None:
        lot = self._lots.get(address)
        if lot is None:
            lot = self._lots[address] = trio.lowlevel.ParkingLot()
        await lot.park()

    def unpark_one(self) -> bool:
        """Wake the first task of the next address. Return False when no task waits."""
        while self._lots:
            address, lot = self._lots.popitem(last=False)
            if not lot:  # its tasks were cancelled
                continue
            lot.unpark()
            if lot:
                self._lots[address] = lot
            return True
        return False
