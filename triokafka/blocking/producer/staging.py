"""Records on their way from the threads that send them to the loop that delivers them.

A thread puts a record into the open chunk of its topic and goes on. The loop takes whole chunks, so that what passing
from thread to thread costs is paid per chunk. While the loop is behind, threads wait; they are let go when half of what
waits is gone, because two threads that take turns for every record would do little else.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

import trio

from triokafka.blocking.producer.chunk import Chunk
from triokafka.errors import (
    ClosedError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    UnknownTopicOrPartitionError,
)

if TYPE_CHECKING:
    from triokafka import Deliveries, Producer
    from triokafka.blocking.callbacks import CallbackThread
    from triokafka.loop_thread import LoopThread
    from triokafka.structs import TopicPartition

logger = logging.getLogger(__name__)

RECORD_OVERHEAD: Final = 82
"""Bytes that a record alone in a batch takes beside key, value and headers."""
_GATHERING_SECONDS: Final = 0.001
_OF_ONE_RECORD: Final = (TypeError, ValueError, MessageSizeTooLargeError, UnknownTopicOrPartitionError)


class Stage:
    """One topic: the chunk that is being filled, and the task that hands chunks over, in order.

    ``partitions`` is the number of the topic's partitions, and ``known`` what is known of them, since ``learned_at``
    (monotonic seconds).
    """

    def __init__(self, staging: Staging, topic: str) -> None:
        self.staging = staging
        self.topic = topic
        self.partitions = 0
        self.known: Sequence[Any] = ()
        self.learned_at = float("-inf")
        self.places: dict[int, TopicPartition] = {}
        self.open: Chunk | None = None
        self._begun = trio.Event()
        self._hurried = trio.Event()
        self._made = self._gone = 0
        """Chunks that were begun, and those of them that were handed over."""
        self._progress = trio.Event()

    def learned(self, partitions: Sequence[Any]) -> None:
        """This is what the topic's metadata says of its partitions."""
        self.partitions, self.known, self.learned_at = len(partitions), partitions, time.monotonic()

    def begin(self) -> Chunk:
        """A new open chunk. The caller holds the lock.

        Raises:
            IllegalStateError: the producer is closed, and nobody would take the chunk.
        """
        if self.staging.closed:
            raise IllegalStateError("KafkaProducer already closed!")
        chunk = self.open = Chunk(self)
        self._made += 1
        return chunk

    def wake(self) -> None:
        """There is a chunk. In the loop."""
        self._begun.set()

    def hurry(self) -> None:
        """Do not wait for more records. In the loop."""
        self._hurried.set()

    async def wait_handed_over(self) -> None:
        """Wait until all that was staged before is handed over, or has failed. In the loop."""
        self.hurry()
        made = self._made  # others may go on sending: who waited for a moment without chunks might do so for ever
        while self._gone < made:
            await self._progress.wait()

    def gone(self) -> None:
        """The oldest chunk was handed over, or has failed. In the loop."""
        self._gone += 1
        self._progress.set()
        self._progress = trio.Event()

    async def run(self, producer: Producer) -> None:
        """Hand chunks over until cancelled."""
        staging = self.staging
        busy_until = 0.0
        while True:
            await self._begun.wait()
            if trio.current_time() < busy_until:
                # The sender is at it: what it sends in the next moment goes along.
                with trio.move_on_after(_GATHERING_SECONDS):
                    await self._hurried.wait()
            self._begun, self._hurried = trio.Event(), trio.Event()
            with staging.lock:
                chunk, self.open = self.open, None
            if chunk is not None:
                try:
                    await self._hand_over(producer, chunk)
                finally:
                    self.gone()
                staging.release(chunk.size)
                busy_until = trio.current_time() + 2 * _GATHERING_SECONDS

    async def _hand_over(self, producer: Producer, chunk: Chunk) -> None:
        count, columns = chunk.take()
        try:
            while (begin := chunk.told) < count:
                await self._send(producer, chunk, {name: column[begin:] for name, column in columns.items()})
        finally:
            # When cancelled: nobody may wait for these for ever.
            while chunk.told < count:
                chunk.handed(
                    ClosedError("the producer was closed while it took the record over; it may have been sent")
                )

    async def _send(self, producer: Producer, chunk: Chunk, columns: dict[str, Any]) -> None:
        """Have the SDK accept all of these records, or those before the first that it refuses, and note that one."""
        try:
            chunk.handed(await producer.send_many(self.topic, **columns))
        except Exception as error:
            accepted: Deliveries | None = getattr(error, "accepted", None)
            _forget_frames(error)
            if accepted is not None and len(accepted):
                chunk.handed(accepted)
            chunk.handed(error)
            if accepted is None or not isinstance(error, _OF_ONE_RECORD):
                left = len(columns["values"]) - len(accepted or ()) - 1
                logger.warning("%d records for topic %s could not be sent: %s", left + 1, self.topic, error)
                for _ in range(left):
                    chunk.handed(error)


def _forget_frames(error: Exception) -> None:
    """Their variables are all records that were handed over together: the future of one must not keep the others."""
    error.__traceback__ = None
    if error.__suppress_context__:
        error.__context__ = None


class Staging:
    """All stages of one producer, and the bound on what waits in them.

    ``stages`` are those that senders know. Every flush begins an ``era`` of chunks, and those until ``flushed`` are
    settled. ``limit`` is bytes of records that were sent and not handed over; then
    `wait_for_room` waits. It also does when ``untold_limit`` bytes of records are settled and their callbacks were not
    called yet: ``staged`` counts them, too, in proportion.
    """

    def __init__(
        self, loop: LoopThread, callbacks: CallbackThread, limit: int, *, untold_limit: int | None = None
    ) -> None:
        self.loop = loop
        self.callbacks = callbacks
        self.lock = threading.Lock()
        self.stages: dict[str, Stage] = {}
        self.limit = limit
        self.staged = 0
        self._untold = 0
        self._untold_limit = max(1, limit if untold_limit is None else untold_limit)
        self.closed = False
        self.era = 0.0
        self.flushed = -1.0
        self._room = threading.Condition(self.lock)

    def release(self, size: int) -> None:
        """So many bytes were handed over."""
        with self._room:
            before, self.staged = self.staged, self.staged - size
            if self.staged <= self.limit // 2 or before > self.limit >= self.staged:
                self._room.notify_all()

    def have_called(self, size: int, do: Callable[..., object], *arguments: Any) -> None:
        """Have the thread for callbacks call ``do``, which calls those of so many bytes of records. In the loop."""
        charge = size * self.limit // self._untold_limit
        with self.lock:
            self.staged += charge
            self._untold += charge
        self.callbacks.put(self._call, charge, do, arguments)

    def _call(self, charge: int, do: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        try:
            do(*arguments)
        finally:
            with self.lock:
                self._untold -= charge
            self.release(charge)

    def wait_for_room(self, timeout: float) -> None:
        """Wait until half of ``limit`` is free, at most ``timeout`` seconds. Called before a record is staged.

        Raises:
            KafkaTimeoutError: it was not.
            IllegalStateError: the producer was closed.
        """
        if self.loop.is_current_thread or self.callbacks.is_current_thread:
            return  # what it would wait for may be waiting for it
        with self._room:
            in_time = self._room.wait_for(lambda: self.closed or self.staged <= self.limit // 2, timeout)
            if self.closed:
                raise IllegalStateError("KafkaProducer already closed!")
            if not in_time and self._untold > self.staged // 2:
                raise KafkaTimeoutError(
                    f"callbacks of {self._untold_limit} bytes of records (buffer_memory) wait to be called, and too few"
                    f" were within {timeout:g} s (max_block_ms): they take longer than the records"
                )
            if not in_time:
                raise KafkaTimeoutError(
                    f"{self.staged} bytes of records wait to be taken over, and none was within {timeout:g} s"
                    " (max_block_ms): the brokers are too slow, or do not answer"
                )

    def begin_flush(self) -> float:
        """A new era; returns the one before."""
        with self.lock:
            before, self.era = self.era, self.era + 1
            return before

    def end_flush(self, era: float) -> None:
        """All records of that era and those before are settled."""
        with self.lock:
            self.flushed = max(self.flushed, era)

    def close(self) -> None:
        """Take no more records than the open chunks. From any thread."""
        with self._room:
            self.closed = True
            self.stages.clear()
            self._room.notify_all()

    def fail(self, stages: Collection[Stage], error: KafkaError) -> None:
        """The producer has ended: all that was not handed over has failed. In the loop."""
        self.close()
        with self.lock:
            chunks = [stage.open for stage in stages if stage.open is not None]
            for stage in stages:
                stage.open = None
        for chunk in chunks:
            count, _ = chunk.take()
            for _ in range(count):
                chunk.handed(error)
            chunk.stage.gone()
            self.release(chunk.size)
