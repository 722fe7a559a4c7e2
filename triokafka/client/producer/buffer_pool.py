"""The memory of all batches that are not settled yet: bounded in bytes, first come first served.

At any time ``total == available + pooled + in_use``; what waiters have reserved counts as in use.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import trio

from triokafka.errors import BufferTimeoutError, MessageSizeTooLargeError


class _Waiter:
    __slots__ = ("buffer", "refused", "reserved", "size", "task")

    def __init__(self, size: int, task: trio.lowlevel.Task) -> None:
        self.size = size
        self.task = task
        self.reserved = 0
        self.buffer: bytearray | None = None
        self.refused: Exception | None = None


class BufferPool:
    """Lends buffers, ``total`` bytes at most; those of exactly ``pooled_size`` bytes are kept and lent again.

    A caller who finds too little memory joins the end of a queue. What is given back goes to the head until it has
    enough, then to the next: a small request never overtakes a large one, and no large one starves.
    ``wait_seconds_total`` and ``_max`` are what callers reported with `note_wait`.
    """

    def __init__(self, total: int, pooled_size: int) -> None:
        self.total = total
        self.pooled_size = pooled_size
        self.available = total
        self.wait_seconds_total = 0.0
        self.wait_seconds_max = 0.0
        self._free: list[bytearray] = []
        self._waiters: deque[_Waiter] = deque()

    @property
    def waiting(self) -> int:
        """Number of callers that wait; while it is not 0 every batch should be sent."""
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
        """A buffer of ``size`` bytes if there is memory for it; None otherwise, which is always while anybody waits:
        what comes free is reserved for the first in line at once.

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
        buffer = bytearray(size)  # before it is counted: the machine may have less memory than we were told to use
        self.available -= size
        return buffer

    async def allocate(self, size: int, timeout: float) -> bytearray:
        """A buffer of ``size`` bytes; waits in line for it, at most ``timeout`` seconds, and checkpoints only then.

        Cancelling gives back what was reserved so far and moves the line on.

        Raises:
            BufferTimeoutError: not enough memory came free in time.
            MessageSizeTooLargeError: ``size`` is more than the pool will ever have.
        """
        buffer = self.try_allocate(size)
        if buffer is not None:
            return buffer
        waiter = _Waiter(size, trio.lowlevel.current_task())
        self._waiters.append(waiter)
        self._serve()  # reserves what little there is; it cannot be enough, or there would have been no need to wait

        def give_up(_: Callable[[], None]) -> trio.lowlevel.Abort:
            self._waiters.remove(waiter)
            self.available += waiter.reserved
            self._serve()
            return trio.lowlevel.Abort.SUCCEEDED

        with trio.move_on_after(timeout):
            await trio.lowlevel.wait_task_rescheduled(give_up)
            if waiter.refused is not None:
                raise waiter.refused
            if waiter.buffer is not None:
                return waiter.buffer
            try:
                return bytearray(size)
            except MemoryError:
                self.release(None, size)
                raise
        raise BufferTimeoutError(
            f"no {size} bytes of buffer memory within {timeout * 1000:.0f} ms: {self.in_use} of buffer_memory="
            f"{self.total} bytes wait for acknowledgement. Send more slowly, or raise buffer_memory or max_block_ms"
        )

    def note_wait(self, seconds: float) -> None:
        """Count the time that a caller spent in `allocate`."""
        self.wait_seconds_total += seconds
        self.wait_seconds_max = max(self.wait_seconds_max, seconds)

    def refuse_waiters(self, make_error: Callable[[], Exception]) -> None:
        """Wake everybody who waits, with an error: there will be no more memory for them."""
        for waiter in self._waiters:
            self.available += waiter.reserved
            waiter.refused = make_error()
            trio.lowlevel.reschedule(waiter.task)
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
            trio.lowlevel.reschedule(head.task)
