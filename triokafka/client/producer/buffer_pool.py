"""The memory of all unsettled batches: bounded in bytes, first come first served. Pure: it wakes waiters by a callback.

At any time ``total == available + pooled + in_use``; what waiters have reserved counts as in use.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from triokafka.errors import MessageSizeTooLargeError


class BufferWaiter:
    """A caller in the pool's line. ``reserved`` of its ``size`` bytes are already reserved for it."""

    __slots__ = ("buffer", "refused", "reserved", "size", "wake")

    def __init__(self, size: int, wake: Callable[[], None]) -> None:
        self.size = size
        self.wake = wake
        self.reserved = 0
        self.buffer: bytearray | None = None
        self.refused: Exception | None = None


class BufferPool:
    """Lends buffers of at most ``total`` bytes in all; it keeps and reuses buffers of exactly ``pooled_size`` bytes.

    A caller that finds too little memory joins the end of a line. Released bytes go to the head of the line until it
    has enough, then to the next: a small request never overtakes a large one, and no large one starves.
    ``wait_seconds_total`` and ``wait_seconds_max`` are the sum and the maximum of the calls of `note_wait`.
    """

    def __init__(self, total: int, pooled_size: int) -> None:
        self.total = total
        self.pooled_size = pooled_size
        self.available = total
        self.exhausted = 0
        """Calls that found no memory in time."""
        self.wait_seconds_total = 0.0
        self.wait_seconds_max = 0.0
        self._free: list[bytearray] = []
        self._waiters: deque[BufferWaiter] = deque()

    @property
    def waiting(self) -> int:
        """Number of waiting callers. While a caller waits, no batch lingers."""
        return len(self._waiters)

    @property
    def pooled(self) -> int:
        """Bytes of the buffers kept for the next borrower."""
        return len(self._free) * self.pooled_size

    @property
    def in_use(self) -> int:
        """Bytes lent out or reserved by waiters."""
        return self.total - self.available - self.pooled

    def try_allocate(self, size: int) -> bytearray | None:
        """Return a buffer of ``size`` bytes if there is memory for it, else None. While callers wait it is always None:
        released bytes are reserved for the first in line.

        Raises:
            MessageSizeTooLargeError: ``size`` is more than the pool will ever have.
        """
        if size > self.total:
            raise MessageSizeTooLargeError(f"a batch of {size} bytes can never fit into buffer_memory={self.total}")
        if size == self.pooled_size and self._free:
            return self._free.pop()
        if size > self.available + self.pooled:
            return None
        self._free_up(size)
        buffer = bytearray(size)  # allocate before counting: the machine may have less memory than buffer_memory
        self.available -= size
        return buffer

    def enqueue(self, size: int, wake: Callable[[], None]) -> BufferWaiter:
        """Join the end of the line; ``wake`` is called when `collect` has the buffer."""
        waiter = BufferWaiter(size, wake)
        self._waiters.append(waiter)
        self._serve()  # reserves the available bytes; if they were enough, `try_allocate` would have returned a buffer
        return waiter

    def withdraw(self, waiter: BufferWaiter) -> None:
        """Leave the line, and pass the bytes reserved so far to the next in it."""
        self._waiters.remove(waiter)
        self.available += waiter.reserved
        self._serve()

    def collect(self, waiter: BufferWaiter) -> bytearray:
        """Return the buffer of a waiter that was woken. Raises the error of `refuse_waiters` or `MemoryError`."""
        if waiter.refused is not None:
            raise waiter.refused
        if waiter.buffer is not None:
            return waiter.buffer
        try:
            return bytearray(waiter.size)
        except MemoryError:
            self.release(None, waiter.size)
            raise

    def note_wait(self, seconds: float) -> None:
        """Count the time that a caller waited for memory."""
        self.wait_seconds_total += seconds
        self.wait_seconds_max = max(self.wait_seconds_max, seconds)

    def refuse_waiters(self, make_error: Callable[[], Exception]) -> None:
        """Wake all waiters with an error."""
        for waiter in self._waiters:
            self.available += waiter.reserved
            waiter.refused = make_error()
            waiter.wake()
        self._waiters.clear()

    def release(self, buffer: bytearray | None, size: int) -> None:
        """Give back ``size`` bytes. ``buffer`` is kept if it is still of the pooled size, as it was lent."""
        if buffer is not None and size == self.pooled_size == len(buffer):
            self._free.append(buffer)
        else:
            self.available += size
        if self._waiters:
            self._serve()

    def _free_up(self, size: int) -> None:
        while self.available < size and self._free:
            self._free.pop()
            self.available += self.pooled_size

    def _serve(self) -> None:
        while self._waiters:
            head = self._waiters[0]
            if head.size == self.pooled_size and not head.reserved and self._free:
                head.buffer = self._free.pop()
                head.reserved = head.size
            else:
                short = head.size - head.reserved
                self._free_up(short)
                taken = min(short, self.available)
                head.reserved += taken
                self.available -= taken
                if taken < short:
                    return
            self._waiters.popleft()
            head.wake()
