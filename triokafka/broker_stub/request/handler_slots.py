"""The number of requests that are worked on at a time (``num.io.threads``), and the queue before it.

A connection's task runs its own request, but only while it holds a slot; without a free one it waits its turn, first
come first served, and does not read from its socket meanwhile: that is the back-pressure. A request that waits for
something other than work (data, replication, a group's members) gives its slot back first.
"""

from __future__ import annotations

import trio


class HandlerSlots:
    """Slots for running requests.

    Args:
        slots: requests that are worked on at a time. ``free`` are those that nobody holds; while more are held than
            there are since `resize`, it is below 0. While it is above 0, nobody waits.
        max_queued: requests that may wait for a slot before no connection is read from (``queued.max.requests``).
    """

    def __init__(self, slots: int, *, max_queued: int = 500) -> None:
        self._slots = slots
        self.free = slots
        self._max_queued = max_queued
        self._waiting = trio.lowlevel.ParkingLot()
        self._readers = trio.lowlevel.ParkingLot()

    @property
    def full(self) -> bool:
        """Whether as many requests wait as may: then nothing is to be read."""
        return len(self._waiting) >= self._max_queued

    async def wait_for_room(self) -> None:
        """Wait while the queue is full: called before a request is read, so that nothing read is ever dropped."""
        while self.full:
            await self._readers.park()

    @property
    def queued(self) -> int:
        """Requests that wait for a slot."""
        return len(self._waiting)

    @property
    def slots(self) -> int:
        """Requests that are worked on at a time."""
        return self._slots

    async def acquire(self) -> Slot:
        """Wait for a slot. If cancelled, none was taken."""
        if self.free > 0:
            return self.acquire_nowait()
        await self._waiting.park()  # release_one() hands its slot over
        return Slot(self)

    def acquire_nowait(self) -> Slot:
        """Take a slot when `free` says that there is one; nobody waits then."""
        self.free -= 1
        return Slot(self)

    def release_one(self) -> None:
        """Called by `Slot.release`: pass the slot on, put it back, or drop it when there are too many."""
        if self.free == 0 and self._waiting:
            self._waiting.unpark()
        else:
            self.free += 1
        if self._readers:
            self._let_in()

    def resize(self, slots: int) -> None:
        """Have more or fewer slots. Requests in progress go on: slots beyond the number vanish as they are released."""
        self.free += slots - self._slots
        self._slots = slots
        while self.free > 0 and self._waiting:
            self.free -= 1
            self._waiting.unpark()
        self._let_in()

    def _let_in(self) -> None:
        """Wake as many readers as there is room for. Who does not queue up leaves the place to the next release."""
        if self._readers:
            self._readers.unpark(count=max(self._max_queued - len(self._waiting), 0))


class Slot:
    """One request's right to be worked on."""

    __slots__ = ("_held", "_slots")

    def __init__(self, slots: HandlerSlots) -> None:
        self._slots = slots
        self._held = True

    def release(self) -> None:
        """Give the slot back; a second call does nothing."""
        if self._held:
            self._held = False
            self._slots.release_one()

    async def resume(self) -> None:
        """Wait for a slot again after `release`. If cancelled, none was taken."""
        if not self._held:
            await self._slots.acquire()
            self._held = True
