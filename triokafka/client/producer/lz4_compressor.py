"""Compression with lz4 outside the event loop, in a thread that never waits for the interpreter lock.

lz4 is so fast that a hand-over per batch, with a wait for the interpreter lock after each, takes as long as the
compression itself. Therefore one thread runs while there is work: it receives each batch when the batch is closed,
continues with the next one by itself, and wakes the event loop through a file descriptor. The event loop compresses
small batches, and all batches on systems where the thread is not possible.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from typing import Final

import trio

from triokafka import kernels
from triokafka.client.producer.batch import ProducerBatch
from triokafka.client.producer.kernel import Lz4Worker
from triokafka.records import BatchBuilder
from triokafka.records import batch as batch_format
from triokafka.records.lz4_library import addresses
from triokafka.world import Doorbell, World

WORTH_GIVING_BYTES: Final = 96 << 10
"""The event loop compresses smaller batches: waking the thread, and then the event loop, would take as long."""
MOST_BYTES: Final = 4 << 20
"""The event loop compresses larger batches too: while it runs, the thread keeps the memory of its largest batch."""
MOST_GIVEN: Final = 4
"""When the thread holds this many batches, the event loop compresses the next one itself. Both are then busy, whether
sending or compressing takes longer."""
IDLE_SECONDS: Final = 0.2
"""How long the thread waits for another batch before it ends."""

_FUNCTIONS: Final = ("LZ4F_compressFrame", "LZ4F_compressFrameBound")


@cache
def functions() -> tuple[int, int] | None:
    """Return the addresses of liblz4's functions in the package ``lz4``, or None if they cannot be found."""
    found = addresses(*_FUNCTIONS)
    return (found[0], found[1]) if found is not None else None


def can_serve(world: World) -> bool:
    """Whether the thread is possible and faster here. The plain twins hold the interpreter lock, so not with those."""
    return world.cpus > 1 and world.has_doorbells and kernels.implementation() == "compiled" and functions() is not None


class Lz4Compressor:
    """A `Compressor`: holds the batches that the thread has, in their order.

    ``start_task`` starts a task of the producer. ``on_done`` receives each batch that the thread has finished; ``wake``
    wakes the sender after that.
    """

    def __init__(
        self,
        *,
        world: World,
        start_task: Callable[[Callable[[], Awaitable[None]]], None],
        on_done: Callable[[ProducerBatch, Exception | None], None],
        wake: Callable[[], None],
    ) -> None:
        self._world = world
        self._start_task = start_task
        self._on_done = on_done
        self._wake = wake
        self._worker: Lz4Worker | None = None
        self._is_starting = False
        self._is_unavailable = False
        self._given: deque[tuple[ProducerBatch, BatchBuilder]] = deque()

    @property
    def waiting(self) -> int:
        """Number of batches that the thread has."""
        return len(self._given)

    def enqueue(self, batch: ProducerBatch) -> None:
        """Pass a closed batch to the thread, if its size is in range and there is room."""
        builder = batch.builder
        if builder is None or batch.in_thread or builder.compressed:
            return
        size = builder.size
        if not WORTH_GIVING_BYTES <= size <= MOST_BYTES:
            return
        if len(self._given) >= MOST_GIVEN:
            self.hand_over()
        if self._worker is None or not self._worker.serving:
            self._begin()
        elif len(self._given) >= MOST_GIVEN:
            with suppress(Exception):  # the event loop compresses it again before sending, which raises the cause
                builder.compress()
        elif self._worker.push(builder.buffer, batch_format.HEADER_SIZE, size):
            batch.in_thread = True
            self._given.append((batch, builder))

    def withdraw(self, batch: ProducerBatch) -> None:
        """Do nothing: the thread keeps its batches until they are compressed."""

    def hand_over(self) -> bool:
        """Take back finished batches. Returns False: the event loop compresses the batches that no thread has."""
        if self._given and self._worker is not None:
            for packed in self._worker.finished():
                batch, builder = self._given.popleft()
                if packed >= 0:
                    builder.take_packed(packed)
                self._let_go(batch)
        return False

    def _let_go(self, batch: ProducerBatch) -> None:
        batch.in_thread = False
        self._on_done(batch, None)

    def _begin(self) -> None:
        if not self._is_starting and not self._is_unavailable:
            self._is_starting = True
            self._start_task(self._serve)

    async def _serve(self) -> None:
        try:
            found = functions()
            assert found is not None, "`can_serve` has checked it"
            with self._world.doorbell() as bell:
                worker = self._worker = Lz4Worker(*found, bell.descriptor)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._listen, bell, worker)
                    await self._world.run_in_thread(worker.serve, IDLE_SECONDS)
                    nursery.cancel_scope.cancel()
        except* (OSError, RuntimeError):
            self._is_unavailable = True  # no thread or no file descriptor is available
        finally:
            self._is_starting = False
            self.hand_over()
            self._worker = None
            while self._given:  # not compressed; the event loop does that when they are sent
                self._let_go(self._given.popleft()[0])
            self._wake()

    async def _listen(self, bell: Doorbell, worker: Lz4Worker) -> None:
        try:
            while True:
                await bell.wait()
                self.hand_over()
                self._wake()
        finally:
            worker.stop()  # a thread is not cancelled


__all__ = ["IDLE_SECONDS", "MOST_BYTES", "MOST_GIVEN", "WORTH_GIVING_BYTES", "Lz4Compressor", "can_serve", "functions"]
