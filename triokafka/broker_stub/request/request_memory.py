"""Memory of requests in progress, limited by ``queued.max.request.bytes``.

A request that does not fit waits before the broker reads its bytes: the connection's window fills up, and the peer
stops sending. Requests of the same size class get memory in the order of their arrival. Requests that fit into a
connection's buffer do not count: the buffer contains them before their size is known.

* A small or medium request (up to `MEDIUM_BYTES`) reserves all of its bytes before the broker reads them.
* A large request reserves steps of `STEP_BYTES` as its bytes arrive, so a peer that announces a large request and sends
  little holds little memory. All large requests together leave room for one request of the largest size, and for small
  and medium requests. The first large request that has to wait may use that room, so at least one always progresses.
* While requests wait, the broker closes the connection of a request that did not receive its reserved bytes within
  ``stall_seconds``.
"""

from __future__ import annotations

import sys
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
"""The broker returns freed memory to the operating system after a peak above this, when a quarter of it is in use."""


class Claim:
    """The memory of one request.

    Args:
        size: size of the request in bytes.
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
    """The memory of all requests in progress.

    Args:
        limit: maximum bytes; 0 or less for no limit. A request larger than the limit, which the configuration
            excludes, runs alone.
        largest: size of the largest request in bytes.
        stall_seconds: maximum time without progress of a request that is being read while others wait.
        now: the clock, in seconds. Without it, no request stalls.
        on_freed: called after a peak, when most of the memory is free again.
    """

    def __init__(
        self,
        limit: int = NO_LIMIT,
        *,
        largest: int = 0,
        stall_seconds: float = 10.0,
        now: Callable[[], float] = lambda: 0.0,
        on_freed: Callable[[], None] | None = None,
    ) -> None:
        self.limit: Final = limit
        self._medium_limit = limit - limit // 16 if limit > 0 else sys.maxsize
        self._large_limit = max(min(limit * 3 // 4, limit - largest), 0)
        self._stall_seconds = stall_seconds
        self._now = now
        self._on_freed = on_freed
        self.used = 0
        """Bytes that are reserved."""
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
        """Maximum memory of the decoded form of one large request, without the frame; 0 for no limit."""
        return max(self.limit // 4, _LEAST_DECODED_BYTES) if self.limit > 0 else 0

    @property
    def waiting(self) -> int:
        """Requests that wait for memory."""
        return len(self._small) + len(self._medium) + len(self._large)

    async def reserve(self, size: int) -> None:
        """Wait until ``size`` bytes are free and reserve them. If cancelled, nothing is reserved."""
        claim = Claim(size)
        try:
            await self.grow(claim, size)
        finally:
            self.received(claim)

    async def grow(self, claim: Claim, more: int) -> None:
        """Reserve ``more`` bytes for a request. If cancelled, earlier reservations of the request stay."""
        used = self.used + more
        if (
            used <= self._medium_limit
            and claim.size <= MEDIUM_BYTES
            and not (self._small or self._medium or self._large or self._privileged)
        ):
            claim.reserved += more
            self.used = used
            if used > self._peak:
                self._peak = used
            return
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
                self._admit()  # the next request in the queue may be smaller
            raise
        finally:
            claim.waiting = False

    def begin(self, claim: Claim) -> float:
        """Watch a request from now on, while its bytes are being received. Return the time."""
        now = claim.granted_at = self._now()
        self._reading[claim] = None
        return now

    def received(self, claim: Claim) -> None:
        """End the watch: the whole request was received, or its connection has ended."""
        self._reading.pop(claim, None)
        if self._privileged is claim:
            self._privileged = None
            if self._large:
                self._admit()

    def add(self, size: int) -> None:
        """Count more memory of an admitted request without waiting, since the memory is in use already."""
        self.added += size
        self._use(size)

    def remove(self, size: int) -> None:
        """Free memory that `add` counted."""
        self.added -= size
        self.release(size)

    async def wait_for_release(self) -> None:
        """Wait until some memory is freed."""
        await self._released.park()

    def release(self, size: int) -> None:
        """Free the memory of a request."""
        self.used -= size
        if self._released:
            self._released.unpark_all()
        if self._peak > _PEAK_WORTH_RETURNING and self.used < self._peak // 4:
            self._peak = self.used
            if self._on_freed is not None:
                self._on_freed()
        if self._small or self._medium or self._large:
            self._admit()

    def _use(self, size: int) -> None:
        self.used += size
        if self.used > self._peak:
            self._peak = self.used

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
        claim.granted_at = self._now()
        self._use(more)

    def _fits(self, claim: Claim, more: int) -> bool:
        wanted, alone = self.used + more, self.used <= claim.reserved
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
        """Close the connections of stalled requests that hold memory and do not wait for more."""
        latest = self._now() - self._stall_seconds
        for claim in list(self._reading):
            if claim.granted_at <= latest and not claim.waiting and claim.close is not None:
                claim.close(
                    f"a request of {claim.size} bytes arrived too slowly while others waited for memory "
                    f"(queued.max.request.bytes); send faster, or raise the limit"
                )
