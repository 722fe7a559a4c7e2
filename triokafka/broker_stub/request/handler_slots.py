"""Handler slots, which limit the number of concurrently processed requests (``num.io.threads``), and their queue.

A connection's task processes its own request, but only while it holds a slot. Without a free slot it waits in FIFO
order and does not read from its socket, which is the back-pressure. A request that waits for data, replication or a
group's members releases its slot first.
"""

from __future__ import annotations

import trio


class HandlerSlots:
    """Slots for running requests.

    Args:
        slots: maximum number of concurrent requests. ``free`` is the number of free slots. It is below 0 while requests
            hold more slots than `resize` has left. While it is above 0, no request waits.
        max_queued: maximum number of requests that wait for a slot; the broker then stops reading from connections
            (``queued.max.requests``).
    """

    def __init__(self, slots: int, *, max_queued: int = 500) -> None:
        self.slots = slots
        """Maximum number of concurrent requests."""
        self.free = slots
        self._max_queued = max_queued
        self._waiting = trio.lowlevel.ParkingLot()
        self._readers = trio.lowlevel.ParkingLot()
        self._holds_back_readers = False

    @property
    def full(self) -> bool:
        """Whether the queue is full, so that connections must not read."""
        return len(self._waiting) >= self._max_queued

    async def wait_for_room(self) -> None:
        """Wait while the queue is full. Call it before reading a request, so that a request that was read has room."""
        while self.full:
            self._holds_back_readers = True
            await self._readers.park()

    @property
    def queued(self) -> int:
        """Requests that wait for a slot."""
        return len(self._waiting)

    async def acquire(self) -> Slot:
        """Wait for a slot. If cancelled, the request holds no slot."""
        if self.free > 0:
            return self.acquire_nowait()
        await self._waiting.park()  # release_one() hands its slot over
        return Slot(self)

    def acquire_nowait(self) -> Slot:
        """Take a slot while `free` is above 0, when no request waits."""
        self.free -= 1
        return Slot(self)

    def release_one(self) -> None:
        """Pass a slot to the next waiting request, free it, or drop it after `resize`. `Slot.release` calls this."""
        if self.free == 0 and self._waiting:
            self._waiting.unpark()
        else:
            self.free += 1
        if self._holds_back_readers:
            self._let_in()

    def resize(self, slots: int) -> None:
        """Change the number of slots. Requests in progress continue; excess slots vanish when they are released."""
        self.free += slots - self.slots
        self.slots = slots
        while self.free > 0 and self._waiting:
            self.free -= 1
            self._waiting.unpark()
        self._let_in()

    def _let_in(self) -> None:
        """Wake as many readers as the queue has room for. The next release offers an unused place to another reader."""
        self._readers.unpark(count=max(self._max_queued - len(self._waiting), 0))
        self._holds_back_readers = bool(self._readers)


class Slot:
    """A handler slot, held by one request."""

    __slots__ = ("_held", "_slots")

    def __init__(self, slots: HandlerSlots) -> None:
        self._slots = slots
        self._held = True

    def release(self) -> None:
        """Release the slot. A second call has no effect."""
        if self._held:
            self._held = False
            self._slots.release_one()

    async def resume(self) -> None:
        """Wait for a slot again after `release`. If cancelled, the request holds no slot."""
        if not self._held:
            await self._slots.acquire()
            self._held = True
