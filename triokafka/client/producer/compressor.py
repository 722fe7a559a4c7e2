"""Where a producer compresses its batches: in the thread for lz4, in worker threads, or in the event loop.

A closed batch waits in a line here. A thread then takes it for compression; only that thread may touch its records and
its buffer meanwhile. If the line is too short to be worth a hand-over, the event loop compresses the batch when it
sends it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from triokafka.client.producer.batch import ProducerBatch
from triokafka.client.producer.lz4_compressor import Lz4Compressor, can_serve
from triokafka.client.producer.partition_queue import Compressor
from triokafka.records import BatchBuilder
from triokafka.world import World

_WORTH_A_THREAD_SECONDS: Final = 0.0002
"""The event loop does smaller amounts of work itself: a hand-over takes 0.1 ms, and moves the data to another core."""
_LONGEST_HAND_OVER_SECONDS: Final = 0.001
"""The most work of one hand-over, unless a single batch is more: finished batches wait for the whole hand-over."""
_ANOTHER_THREAD_SECONDS: Final = 0.004
"""With this much work in the line, another thread starts; with less it would only compete for the caches."""
MOST_THREADS: Final = 2
"""Threads of one producer that compress at the same time."""

_FAST: Final = 200e6
_CPUS_FOR_FAST_CODECS: Final = 4
"""With fewer processors, threads do not help codecs that compress more than `_FAST` bytes per second. Measured with two
processors, which event loop and broker keep busy: the same records per second, at a third more processor time."""

_BYTES_PER_SECOND: Final = {"gzip": 60e6, "lz4": 800e6, "zstd": 450e6}
"""Approximate speed of the codecs at their default levels. Snappy is missing: its package needs the interpreter lock
for each 32 KiB, and a thread would wait for the event loop each time."""
FAST_LZ4: Final = 9
_ZSTD_SPEEDS: Final = ((3, 450e6), (6, 120e6), (12, 40e6))


def bytes_per_second(codec: str, level: int | None) -> float:
    """Return a codec's approximate speed; infinity if threads would not help."""
    speed = _BYTES_PER_SECOND.get(codec, float("inf"))
    if level is None:
        return speed
    if codec == "lz4" and level != FAST_LZ4:
        return 60e6
    if codec == "zstd":
        return next((known for upto, known in _ZSTD_SPEEDS if level <= upto), 5e6)
    return speed


class ThreadCompressor:
    """The line of closed batches that are not compressed, and the tasks that take them to threads.

    ``start_task`` starts a task of the producer. ``on_done`` gets each batch that a thread is done with, and its error
    or None. Threads hold at most `MOST_THREADS` times a millisecond's work, or a batch each if that is more; the buffer
    pool, whose memory the batches hold, bounds the line.
    """

    def __init__(
        self,
        codec: str,
        level: int | None,
        *,
        world: World,
        start_task: Callable[[Callable[[], Awaitable[None]]], None],
        on_done: Callable[[ProducerBatch, Exception | None], None],
    ) -> None:
        speed = bytes_per_second(codec, level)
        if speed > _FAST and world.cpus < _CPUS_FOR_FAST_CODECS:
            speed = float("inf")
        self._worth_it = speed * _WORTH_A_THREAD_SECONDS
        self._at_once = speed * _LONGEST_HAND_OVER_SECONDS
        self._worth_another = speed * _ANOTHER_THREAD_SECONDS
        self._world = world
        self._start_task = start_task
        self._on_done = on_done
        self._line: dict[ProducerBatch, int] = {}
        self._bytes = 0
        self._tasks = 0

    @property
    def waiting(self) -> int:
        """Number of batches in the line."""
        return len(self._line)

    def enqueue(self, batch: ProducerBatch) -> None:
        """Add a closed batch to the line, if it is not there."""
        if batch not in self._line and batch.builder is not None:
            size = self._line[batch] = batch.builder.size
            self._bytes += size

    def withdraw(self, batch: ProducerBatch) -> None:
        """Remove a batch from the line: the event loop compresses it, or it was given up."""
        self._bytes -= self._line.pop(batch, 0)

    def hand_over(self) -> bool:
        """Let threads compress the line if there is enough work. False if the event loop must compress."""
        if self._bytes < self._worth_it:
            return False
        if not self._tasks or (self._tasks < MOST_THREADS and self._bytes > self._worth_another):
            self._tasks += 1
            self._start_task(self._work)
        return True

    async def _work(self) -> None:
        try:
            while self._bytes >= self._worth_it:
                await self._compress(self._take())
        finally:
            self._tasks -= 1

    def _take(self) -> list[ProducerBatch]:
        """Return the batches for one hand-over, the oldest first."""
        taken: list[ProducerBatch] = []
        size = 0
        for batch, bytes_ in self._line.items():
            if taken and size + bytes_ > self._at_once:
                break
            taken.append(batch)
            size += bytes_
        for batch in taken:
            self.withdraw(batch)
            batch.in_thread = True
        return taken

    async def _compress(self, batches: list[ProducerBatch]) -> None:
        builders = [batch.builder for batch in batches if batch.builder is not None]
        errors: list[Exception | None] = [None] * len(batches)
        try:
            errors = await self._world.run_in_thread(_compress_all, builders)
        except Exception as failure:
            # No thread is available. Trying again immediately would not help.
            errors = [failure] * len(batches)
        finally:
            # Cancelled before a thread began, the batches are unchanged; a running thread is waited for.
            for batch, error in zip(batches, errors, strict=True):
                batch.in_thread = False
                self._on_done(batch, error)


def _compress_all(builders: list[BatchBuilder]) -> list[Exception | None]:
    """Compress each batch, in a thread; an error affects only its own batch."""
    errors: list[Exception | None] = []
    for builder in builders:
        try:
            builder.compress()
        except Exception as error:
            errors.append(error)
        else:
            errors.append(None)
    return errors


def compressor_for(
    codec: str,
    level: int | None,
    *,
    world: World,
    start_task: Callable[[Callable[[], Awaitable[None]]], None],
    on_done: Callable[[ProducerBatch, Exception | None], None],
    wake: Callable[[], None],
) -> Compressor:
    """Return the compressor for a codec in this world.

    ``on_done`` gets each batch that a thread is done with; then ``wake`` wakes the sender.
    """
    if codec == "lz4" and level in (None, FAST_LZ4) and can_serve(world):
        return Lz4Compressor(world=world, start_task=start_task, on_done=on_done, wake=wake)

    def done(batch: ProducerBatch, error: Exception | None) -> None:
        on_done(batch, error)
        wake()

    return ThreadCompressor(codec, level, world=world, start_task=start_task, on_done=done)
