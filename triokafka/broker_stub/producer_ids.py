"""Producer ids, handed out from the block that the controller gave to this broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio


class ProducerIds:
    """Gives every caller another id.

    Args:
        allocate: asks the controller for a block: its first id and its size.
    """

    def __init__(self, allocate: Callable[[], Awaitable[tuple[int, int]]]) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._lock = trio.Lock()

    async def next_id(self) -> int:
        """Return the next id. Waits for the controller when the block is used up, and raises its error."""
        if self._next == self._end:
            async with self._lock:
                if self._next == self._end:  # no other task got a block meanwhile
                    first, size = await self._allocate()
                    self._next, self._end = first, first + size
        producer_id = self._next
        self._next += 1
        return producer_id
