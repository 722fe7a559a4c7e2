"""Memory for requests that are being read and worked on, bounded by ``queued.max.request.bytes``.

A request that does not fit waits before its bytes are read: the connection's window fills up, and the peer stops
sending. Who came first is let in first. Requests that fit into a connection's own buffer are not counted: they are here
already when their size is known, and so small clients get through while large requests wait.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import trio

NO_LIMIT: Final = -1


class _Waiting:
    """A request that does not fit yet."""

    __slots__ = ("admitted", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.admitted = trio.Event()


class RequestMemory:
    """The bytes of all requests that are being read or worked on.

    Args:
        limit: how many there may be, 0 or less for any number. A request that is larger than that, which the
            configuration excludes, is let in alone.
    """

    def __init__(self, limit: int = NO_LIMIT) -> None:
        self._limit = limit
        self._used = 0
        self._queue: deque[_Waiting] = deque()

    @property
    def used(self) -> int:
        """Bytes that are reserved."""
        return self._used

    @property
    def waiting(self) -> int:
        """Requests that wait for room."""
        return len(self._queue)

    def try_reserve(self, size: int) -> bool:
        """Count a request, if it fits and nobody waits."""
        if self._queue or not self._fits(size):
            return False
        self._used += size
        return True

    async def reserve(self, size: int) -> None:
        """Wait until a request fits, and count it. If cancelled, nothing was counted."""
        if self.try_reserve(size):
            return
        waiting = _Waiting(size)
        self._queue.append(waiting)
        try:
            await waiting.admitted.wait()
        except BaseException:
            if waiting.admitted.is_set():
                self.release(size)
            else:
                self._queue.remove(waiting)
                self._admit()  # what is behind it may be smaller
            raise

    def add(self, size: int) -> None:
        """Count more for a request that was let in, without waiting: it is there already. Others wait the longer."""
        self._used += size

    def release(self, size: int) -> None:
        """A request is done with."""
        self._used -= size
        self._admit()

    def _fits(self, size: int) -> bool:
        return self._limit <= 0 or not self._used or self._used + size <= self._limit

    def _admit(self) -> None:
        while self._queue and self._fits(self._queue[0].size):
            waiting = self._queue.popleft()
            self._used += waiting.size
            waiting.admitted.set()
