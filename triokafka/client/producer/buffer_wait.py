"""Waiting for buffer memory: the producer's ``buffer_memory`` is used up."""

from __future__ import annotations

from collections.abc import Callable

import trio

from triokafka.client.producer.buffer_pool import BufferPool
from triokafka.errors import BufferTimeoutError


async def allocate(pool: BufferPool, size: int, timeout: float) -> bytearray:
    """Return a buffer of ``size`` bytes; wait in line for it, at most ``timeout`` seconds, and checkpoint only then.

    Cancelling gives back the bytes reserved so far, and the next waiter gets them.

    Raises:
        BufferTimeoutError: not enough memory was released in time.
        MessageSizeTooLargeError: ``size`` is more than the pool will ever have.
    """
    buffer = pool.try_allocate(size)
    if buffer is not None:
        return buffer
    task = trio.lowlevel.current_task()
    waiter = pool.enqueue(size, lambda: trio.lowlevel.reschedule(task))

    def give_up(_: Callable[[], None]) -> trio.lowlevel.Abort:
        pool.withdraw(waiter)
        return trio.lowlevel.Abort.SUCCEEDED

    with trio.move_on_after(timeout):
        await trio.lowlevel.wait_task_rescheduled(give_up)
        return pool.collect(waiter)
    pool.exhausted += 1
    raise BufferTimeoutError(
        f"no {size} bytes of buffer memory within {timeout * 1000:.0f} ms: {pool.in_use} of buffer_memory="
        f"{pool.total} bytes wait for acknowledgement. Send more slowly, or raise buffer_memory or max_block_ms"
    )
