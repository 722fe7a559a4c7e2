"""Waiting for accepted records: in a flush, and when the producer is closed."""

from __future__ import annotations

from collections.abc import Callable

import trio

from triokafka.client.producer.accumulator import Accumulator


async def flush(accumulator: Accumulator, wake_sender: Callable[[], None]) -> None:
    """Send all accepted records without linger, and wait until each is acknowledged or has failed.

    Does not wait for records accepted during the call.
    """
    accumulator.flushes += 1
    try:
        wake_sender()
        await trio.lowlevel.checkpoint()
        pending = accumulator.batches.all()
        while pending:
            batch = pending.pop()
            await batch.wait()
            if batch.pieces:
                pending.extend(piece for _, piece in batch.pieces)
    finally:
        accumulator.flushes -= 1


async def drain(
    accumulator: Accumulator, wake_sender: Callable[[], None], *, patience: float, has_failed: Callable[[], bool]
) -> bool:
    """Wait until all batches of a closing producer are settled.

    Returns False if none was settled for ``patience`` seconds. Ends when the producer ``has_failed``.
    """
    accumulator.closing = True
    wake_sender()
    while not has_failed() and (waiting := accumulator.batches.all()):
        with trio.move_on_after(patience) as scope:
            await waiting[0].wait()
        # Other partitions may have made progress.
        if scope.cancelled_caught and not any(batch.done or batch.pieces for batch in waiting):
            return False
    return True
