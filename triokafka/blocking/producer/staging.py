"""Staging: records on their way from the sending threads to the loop that delivers them.

A thread appends a record to the open chunk of its topic and returns. The loop takes whole chunks, so that the cost of
passing data between threads is paid per chunk. Threads wait while the loop is behind. They continue when half of the
staged bytes are taken: two threads that alternate for every record would spend most of their time switching.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

import trio

from triokafka import errors
from triokafka.blocking.producer.chunk import Chunk

if TYPE_CHECKING:
    from triokafka import Deliveries, Producer
    from triokafka.blocking.callbacks import CallbackThread
    from triokafka.loop_thread import LoopThread
    from triokafka.structs import TopicPartition

logger = logging.getLogger(__name__)

RECORD_OVERHEAD: Final = 82
"""Size in bytes of a batch with one record, without the record's key, value and headers."""
_GATHERING_SECONDS: Final = 0.001
_GATHERING_SECONDS_IN_TRANSACTIONS: Final = 0.005
"""Readers see nothing before the commit, which does not wait for this time: fewer and larger chunks cost less."""
_OF_ONE_RECORD: Final = (TypeError, ValueError, errors.MessageSizeTooLargeError, errors.UnknownTopicOrPartitionError)


class Stage:
    """One topic: the chunk that senders fill, and the task that hands chunks to the SDK in order.

    ``partitions`` is the number of the topic's partitions. ``known`` is their metadata, as of ``learned_at`` (monotonic
    seconds).
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
        """The number of chunks begun, and how many of them were handed over or failed."""
        self._progress = trio.Event()

    def learned(self, partitions: Sequence[Any]) -> None:
        """Store the partitions from the topic's metadata."""
        self.partitions, self.known, self.learned_at = len(partitions), partitions, time.monotonic()

    def begin(self) -> Chunk:
        """Open a new chunk. The caller holds the lock.

        Raises:
            IllegalStateError: the producer is closed.
        """
        if self.staging.closed:
            raise errors.IllegalStateError("KafkaProducer already closed!")
        chunk = self.open = Chunk(self)
        self._made += 1
        return chunk

    def wake(self) -> None:
        """Wake the task: a chunk is open. In the loop."""
        self._begun.set()

    def hurry(self) -> None:
        """Hand the open chunk over without waiting for more records. In the loop."""
        self._hurried.set()

    async def wait_handed_over(self) -> None:
        """Wait until all chunks begun so far are handed over or have failed. In the loop."""
        self.hurry()
        made = self._made  # fixed now: with steady senders there may never be a moment without chunks
        while self._gone < made:
            await self._progress.wait()

    def gone(self) -> None:
        """Note that the oldest chunk was handed over or has failed. In the loop."""
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
                # The sender is active: include the records that it sends within the next moment.
                with trio.move_on_after(staging.gathering):
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
                busy_until = trio.current_time() + 2 * staging.gathering

    async def _hand_over(self, producer: Producer, chunk: Chunk) -> None:
        count, columns = chunk.take()
        try:
            while (begin := chunk.notified) < count:
                await self._send(producer, chunk, {name: column[begin:] for name, column in columns.items()})
        finally:
            # After cancellation, no caller may wait for these records for ever.
            while chunk.notified < count:
                chunk.handed(
                    errors.ClosedError(
                        "the producer was closed while it accepted the record; the record may have been sent"
                    )
                )

    async def _send(self, producer: Producer, chunk: Chunk, columns: dict[str, Any]) -> None:
        """Send these records through the SDK. If it refuses one, note those before it as accepted, and that one as
        failed."""
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
    """Remove the traceback: its frames refer to all records of the chunk, and one future would keep them alive."""
    error.__traceback__ = None
    if error.__suppress_context__:
        error.__context__ = None


class Staging:
    """All stages of one producer, and the bound on the bytes that wait in them.

    ``stages`` are the open ones by topic. Every flush begins a new ``flush_period`` of chunks; all records of periods
    up to ``flushed`` are settled. ``staged`` counts bytes of records that were sent and not handed over yet; above
    ``limit``, `wait_for_room` waits. ``staged`` also counts, in proportion, records that are settled but whose
    callbacks have not run yet: ``unreported_limit`` bytes of them count as ``limit``. ``gathering`` is how many seconds
    a busy sender's chunk stays open; they are more for records ``in_transactions``.
    """

    def __init__(
        self,
        loop: LoopThread,
        callbacks: CallbackThread,
        limit: int,
        *,
        unreported_limit: int | None = None,
        in_transactions: bool = False,
    ) -> None:
        self.loop = loop
        self.callbacks = callbacks
        self.lock = threading.Lock()
        self.stages: dict[str, Stage] = {}
        self.limit = limit
        self.gathering = _GATHERING_SECONDS_IN_TRANSACTIONS if in_transactions else _GATHERING_SECONDS
        self.staged = 0
        self._unreported = 0
        self._unreported_limit = max(1, limit if unreported_limit is None else unreported_limit)
        self.closed = False
        self.flush_period = 0.0
        self.flushed = -1.0
        self._room = threading.Condition(self.lock)

    def release(self, size: int) -> None:
        """Return ``size`` bytes of the bound."""
        with self._room:
            before, self.staged = self.staged, self.staged - size
            if self.staged <= self.limit // 2 or before > self.limit >= self.staged:
                self._room.notify_all()

    def have_called(self, size: int, do: Callable[..., object], *arguments: Any) -> None:
        """Have the callback thread call ``do``, which runs the callbacks for ``size`` bytes of records. In the loop."""
        charge = size * self.limit // self._unreported_limit
        with self.lock:
            self.staged += charge
            self._unreported += charge
        self.callbacks.put(self._call, charge, do, arguments)

    def _call(self, charge: int, do: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        try:
            do(*arguments)
        finally:
            with self.lock:
                self._unreported -= charge
            self.release(charge)

    def wait_for_room(self, timeout: float) -> None:
        """Wait until half of ``limit`` is free, at most ``timeout`` seconds. Called before a record is staged.

        Raises:
            KafkaTimeoutError: the time limit passed.
            IllegalStateError: the producer was closed.
        """
        if self.loop.is_current_thread or self.callbacks.is_current_thread:
            return  # in these threads the wait would block what frees the room
        with self._room:
            in_time = self._room.wait_for(lambda: self.closed or self.staged <= self.limit // 2, timeout)
            if self.closed:
                raise errors.IllegalStateError("KafkaProducer already closed!")
            if not in_time and self._unreported > self.staged // 2:
                raise errors.KafkaTimeoutError(
                    f"callbacks of {self._unreported_limit} bytes of records (buffer_memory) have not run yet, and too"
                    f" few ran within {timeout:g} s (max_block_ms): the callbacks are slower than the sends"
                )
            if not in_time:
                raise errors.KafkaTimeoutError(
                    f"{self.staged} bytes of records wait for the loop, and it took none within {timeout:g} s"
                    " (max_block_ms): the brokers are too slow, or do not answer"
                )

    def begin_flush(self) -> float:
        """Begin a new flush period; return the previous one."""
        with self.lock:
            before, self.flush_period = self.flush_period, self.flush_period + 1
            return before

    def end_flush(self, flush_period: float) -> None:
        """Note that all records up to this flush_period are settled."""
        with self.lock:
            self.flushed = max(self.flushed, flush_period)

    def close(self) -> None:
        """Accept no new chunks. From any thread."""
        with self._room:
            self.closed = True
            self.stages.clear()
            self._room.notify_all()

    def fail(self, stages: Collection[Stage], error: errors.KafkaError) -> None:
        """Fail all records that were not handed over, because the producer has ended. In the loop."""
        self.close()
        with self.lock:
            chunks = [(stage, stage.open) for stage in stages if stage.open is not None]
            for stage in stages:
                stage.open = None
        for stage, chunk in chunks:
            count, _ = chunk.take()
            for _ in range(count):
                chunk.handed(error)
            stage.gone()
            self.release(chunk.size)
