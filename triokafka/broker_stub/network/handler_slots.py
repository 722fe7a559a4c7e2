"""The fixed number of requests that are worked on at a time (``num.io.threads``), and the queue before it.

A connection's task runs its own request, but only while it holds a slot; without a free one it waits its turn, first
come first served, and does not read from its socket meanwhile: that is the back-pressure. A request that waits for
something other than work (data, replication, a group's members) gives its slot back first.
"""

from __future__ import annotations

import trio


class HandlerSlots:
    """Slots for running requests.

    Args:
        slots: requests that are worked on at a time.
        max_queued: requests that may wait for a slot before no connection is read from (``queued.max.requests``).
    """

    def __init__(self, slots: int, *, max_queued: int = 500) -> None:
        self._free = slots
        self._max_queued = max_queued
        self._waiting = trio.lowlevel.ParkingLot()
        self._readers = trio.lowlevel.ParkingLot()

    async def wait_for_room(self) -> None:
        """Wait while the queue is full: called before a request is read, so that nothing read is ever dropped."""
        while len(self._waiting) >= self._max_queued:
            await self._readers.park()

    @property
    def queued(self) -> int:
        """Requests that wait for a slot."""
        return len(self._waiting)

    @property
    def free(self) -> int:
        """Slots that nobody holds."""
        return self._free

    async def acquire(self) -> Slot:
        """Wait for a slot. If cancelled, none was taken."""
        if self._free:
            self._free -= 1
        else:
            await self._waiting.park()  # release() hands its slot over
        return Slot(self)

    def release_one(self) -> None:
        """Called by `Slot.release`: pass the slot on, or put it back."""
        if self._waiting:
            self._waiting.unpark()
            self._readers.unpark_all()
        else:
            self._free += 1


class Slot:
    """One request's right to be worked on."""

    __slots__ = ("_slots",)

    def __init__(self, slots: HandlerSlots) -> None:
        self._slots: HandlerSlots | None = slots

    def release(self) -> None:
        """Give the slot back; a second call does nothing."""
        if self._slots is not None:
            self._slots.release_one()
            self._slots = None
