"""Memory for requests that are being read and worked on, bounded by ``queued.max.request.bytes``.

A request that does not fit waits before its bytes are read: the connection's window fills up, and the peer stops
sending. Requests are admitted in the order of their arrival within their class of size. Requests that fit into a
connection's own buffer are not counted: they are here already when their size is known.

* A small or medium request (up to `MEDIUM_BYTES`) reserves all of its bytes before the first of them is read.
* A large request reserves `STEP_BYTES` after the other, as its bytes come in, so a peer that announces much and sends
  little holds little. Large requests together leave room for one of the largest size, and for small and medium ones.
  The first large request that has to wait may use that room as well, so at least one of them always gets on.
* While requests wait, the connection of a request that did not receive what it had reserved within ``stall_seconds`` is
  closed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import trio

NO_LIMIT: Final = -1
SMALL_BYTES: Final = 65_536
MEDIUM_BYTES: Final = 1_048_576
STEP_BYTES: Final = 1_048_576
_LEAST_DECODED_BYTES: Final = 8 << 20
_PEAK_WORTH_RETURNING: Final = 32 << 20
"""Freed memory goes back to the operating system after the use has been above this, and fell to a quarter of it."""


class Claim:
    """The memory of one request.

    Args:
        size: bytes that the request announced.
        close: closes the request's connection for the given reason.
    """

    __slots__ = ("close", "granted_at", "reserved", "size", "waiting")

    def __init__(self, size: int, close: Callable[[str], None] | None = None) -> None:
        self.size = size
        self.close = close
        self.reserved = 0
        self.granted_at = 0.0
        self.waiting = False


class _Waiting:
    """A claim that waits for more bytes."""

    __slots__ = ("admitted", "claim", "more")

    def __init__(self, claim: Claim, more: int) -> None:
        self.claim = claim
        self.more = more
        self.admitted = trio.Event()


class RequestMemory:
    """The bytes of all requests that are being read or worked on.

    Args:
        limit: how many there may be, 0 or less for any number. A request that is larger than that, which the
            configuration excludes, is admitted alone.
        largest: bytes of the largest request.
        stall_seconds: how long a request that is being read may make no progress while others wait.
        now: the clock, in seconds.
        on_freed: called when much memory was in use and most of it is free again.
    """

    def __init__(
        self,
        limit: int = NO_LIMIT,
        *,
        largest: int = 0,
        stall_seconds: float = 10.0,
        now: Callable[[], float] | None = None,
        on_freed: Callable[[], None] | None = None,
    ) -> None:
        self.limit: Final = limit
        self._medium_limit = limit - limit // 16
        self._large_limit = max(min(limit * 3 // 4, limit - largest), 0)
        self._stall_seconds = stall_seconds
        self._now = now
        self._on_freed = on_freed
        self._used = 0
        self._peak = 0
        self.added = 0
        """Bytes that `add` counted."""
        self._released = trio.lowlevel.ParkingLot()
        self._small: deque[_Waiting] = deque()
        self._medium: deque[_Waiting] = deque()
        self._large: deque[_Waiting] = deque()
        self._reading: dict[Claim, None] = {}
        self._privileged: Claim | None = None  # the large request that may use the room for one of the largest size

    @property
    def decoded_limit(self) -> int:
        """Memory that one large request may take when it is decoded, beside its own bytes; 0 for no such limit."""
        return max(self.limit // 4, _LEAST_DECODED_BYTES) if self.limit > 0 else 0

    @property
    def used(self) -> int:
        """Bytes that are reserved."""
        return self._used

    @property
    def waiting(self) -> int:
        """Requests that wait for memory."""
        return len(self._small) + len(self._medium) + len(self._large)

    def try_reserve(self, size: int) -> bool:
        """Reserve memory if it is free and no request of this size waits."""
        claim = Claim(size)
        try:
            return self._try(claim, size)
        finally:
            self.received(claim)

    async def reserve(self, size: int) -> None:
        """Wait until this much memory is free, and reserve it. If cancelled, nothing was reserved."""
        claim = Claim(size)
        try:
            await self.grow(claim, size)
        finally:
            self.received(claim)

    async def grow(self, claim: Claim, more: int) -> None:
        """Reserve ``more`` bytes for a request. If cancelled, what was reserved before stays reserved."""
        if self._try(claim, more):
            return
        waiting = _Waiting(claim, more)
        queue = self._queue(claim)
        queue.append(waiting)
        claim.waiting = True
        self._admit()  # as the privileged one
        try:
            while not waiting.admitted.is_set():
                with trio.move_on_after(self._stall_seconds):
                    await waiting.admitted.wait()
                if not waiting.admitted.is_set():
                    self._close_stalled()
        except BaseException:
            if waiting.admitted.is_set():
                claim.reserved -= more
                self.release(more)
            else:
                queue.remove(waiting)
                self._admit()  # what is behind it may be smaller
            raise
        finally:
            claim.waiting = False

    def begin(self, claim: Claim) -> None:
        """Watch a request while its bytes are being received."""
        self._reading[claim] = None

    def received(self, claim: Claim) -> None:
        """End the watch: the whole request was received, or its connection has ended."""
        self._reading.pop(claim, None)
        if self._privileged is claim:
            self._privileged = None
            if self._large:
                self._admit()

    def add(self, size: int) -> None:
        """Count more for a request that was admitted, without waiting: the memory is in use already."""
        self.added += size
        self._use(size)

    def remove(self, size: int) -> None:
        """Free what was counted by `add`."""
        self.added -= size
        self.release(size)

    async def wait_for_release(self) -> None:
        """Wait until some memory is freed."""
        await self._released.park()

    def release(self, size: int) -> None:
        """Free the memory of a request."""
        self._used -= size
        if self._released:
            self._released.unpark_all()
        if self._peak > _PEAK_WORTH_RETURNING and self._used < self._peak // 4:
            self._peak = self._used
            if self._on_freed is not None:
                self._on_freed()
        self._admit()

    def _use(self, size: int) -> None:
        self._used += size
        if self._used > self._peak:
            self._peak = self._used

    def _queue(self, claim: Claim) -> deque[_Waiting]:
        if claim.size <= SMALL_BYTES:
            return self._small
        return self._medium if claim.size <= MEDIUM_BYTES else self._large

    def _try(self, claim: Claim, more: int) -> bool:
        if self.limit > 0:
            queue = self._queue(claim)
            if (queue and self._privileged is not claim) or not self._fits(claim, more):
                return False
        self._grant(claim, more)
        return True

    def _grant(self, claim: Claim, more: int) -> None:
        claim.reserved += more
        if self._now is not None:
            claim.granted_at = self._now()
        self._use(more)

    def _fits(self, claim: Claim, more: int) -> bool:
        wanted, alone = self._used + more, self._used <= claim.reserved
        if claim.size <= SMALL_BYTES:
            return alone or wanted <= self.limit
        if claim.size <= MEDIUM_BYTES:
            if self._privileged is not None and self._privileged.waiting:
                return False
            return alone or wanted <= self._medium_limit
        if wanted <= self._large_limit:
            return True
        if self._privileged is None:
            self._privileged = claim
        return self._privileged is claim and (alone or wanted <= self.limit)

    def _admit(self) -> None:
        while self._small and self._admit_one(self._small, self._small[0]):
            pass
        privileged = self._privileged
        if privileged is not None and privileged.waiting:
            waiting = next((one for one in self._large if one.claim is privileged), None)
            if waiting is not None:
                self._admit_one(self._large, waiting)
        while self._medium and self._admit_one(self._medium, self._medium[0]):
            pass
        while self._large and self._admit_one(self._large, self._large[0]):
            pass

    def _admit_one(self, queue: deque[_Waiting], waiting: _Waiting) -> bool:
        if not self._fits(waiting.claim, waiting.more):
            return False
        queue.remove(waiting)
        self._grant(waiting.claim, waiting.more)
        waiting.claim.waiting = False
        waiting.admitted.set()
        return True

    def _close_stalled(self) -> None:
        """Close the connections of requests that hold memory, did not go on, and are not waiting for memory."""
        if self._now is None:
            return
        latest = self._now() - self._stall_seconds
        for claim in list(self._reading):
            if claim.granted_at <= latest and not claim.waiting and claim.close is not None:
                claim.close(
                    f"a request of {claim.size} bytes came too slowly while others waited for memory "
                    f"(queued.max.request.bytes); send faster, or raise it"
                )
