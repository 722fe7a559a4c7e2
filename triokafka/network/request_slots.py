"""Room for one more request on a connection: the tasks that wait for it, in order, and the connection's owner."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio

_NEVER: Final = float("inf")


class _SlotWaiter:
    __slots__ = ("event",)

    def __init__(self) -> None:
        self.event = trio.Event()


class RequestSlots:
    """The line of tasks that wait to submit a request.

    Args:
        has_room: whether the connection takes one more request.
        has_ended: whether the connection has ended, so that no request has to wait.
        muted_seconds: for how long the broker still throttles this client; 0 or less if it does not.
        on_room: called when a request may be submitted after that was impossible, and no task waits.
    """

    def __init__(
        self,
        *,
        has_room: Callable[[], bool],
        has_ended: Callable[[], bool],
        muted_seconds: Callable[[], float],
        on_room: Callable[[], None],
    ) -> None:
        self.waiters: deque[_SlotWaiter] = deque()
        self.owner_may_wait = False
        """Whether ``on_room`` is to be called: the owner may have found no room."""
        self._has_room = has_room
        self._has_ended = has_ended
        self._muted_seconds = muted_seconds
        self._on_room = on_room

    async def wait(self) -> None:
        """Wait until a request may be submitted, or the connection has ended. Waiters proceed in order of arrival.

        The caller must submit its request before its next checkpoint. Also waits while the broker throttles this
        client. A cancelled waiter passes its place to the next.
        """
        if self._has_ended() or (not self.waiters and self._has_room() and self._muted_seconds() <= 0):
            return
        waiter = _SlotWaiter()
        self.waiters.append(waiter)
        self.owner_may_wait = True
        try:
            while not self._has_ended():
                is_first = self.waiters[0] is waiter
                mute = self._muted_seconds()
                if is_first and self._has_room() and mute <= 0:
                    return
                waiter.event = trio.Event()
                # Only the first in line keeps the time, so that the others stay in line.
                with trio.move_on_after(mute if is_first and mute > 0 else _NEVER):
                    await waiter.event.wait()
        finally:
            self.waiters.remove(waiter)
            self.report_space()

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Let no other task submit requests while the block runs. Requests in flight continue, and get their responses.

        The block may submit requests and wait for responses.
        """
        waiter = _SlotWaiter()
        self.waiters.appendleft(waiter)
        self.owner_may_wait = True
        try:
            yield
        finally:
            self.waiters.remove(waiter)
            self.report_space()

    def report_space(self) -> None:
        """Wake the first waiter, or else call the owner: a response came, bytes were written, or a waiter left."""
        if self.waiters:
            self.waiters[0].event.set()
        elif self.owner_may_wait and self._has_room():
            self.owner_may_wait = False
            self._on_room()

    def end(self) -> None:
        """Wake all waiters: the connection has ended."""
        for waiter in self.waiters:
            waiter.event.set()
