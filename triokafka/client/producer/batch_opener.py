"""Opens batches for callers: finds buffer memory, and decides when a caller yields to other tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from triokafka.client.config import ProducerOptions
from triokafka.client.producer.accumulator import Accumulator
from triokafka.client.producer.batch import ProducerBatch
from triokafka.client.producer.buffer_wait import allocate
from triokafka.client.producer.interceptors import Headers
from triokafka.client.producer.partition_queue import PartitionQueue
from triokafka.client.producer.record_size import RecordSizeLimit
from triokafka.client.producer.topic_state import TopicState
from triokafka.client.producer.wakeup import Wakeup
from triokafka.errors import BufferFullError
from triokafka.network.network_client import NetworkClient
from triokafka.structs import Buffer
from triokafka.world import World

_BYTES_BETWEEN_YIELDS: Final = 1 << 20
_SECONDS_BETWEEN_YIELDS: Final = 0.001
"""A caller yields to other tasks when its new batches have taken this much memory, or after this time. One pass of the
event loop costs about as much as sending a batch; fewer passes would delay other tasks. A caller also yields when it
has filled as many batches as may be in flight: further batches would only queue."""
_LONGEST_PAUSE_SECONDS: Final = 0.005
"""The longest time that a yielding caller waits for the network to catch up, when more batches of its partition are
ready than may be in flight. A batch that is sent soon after it was filled is still in the processor's caches. With a
slow broker, callers still fill the rest of the memory. ``max_block_ms`` bounds the pause too."""


class BatchOpener:
    """Opens the next batch of a queue. ``check_usable`` raises when the producer is closed or has failed."""

    def __init__(
        self,
        options: ProducerOptions,
        accumulator: Accumulator,
        client: NetworkClient,
        wakeup: Wakeup,
        *,
        world: World,
        check_usable: Callable[[], None],
    ) -> None:
        self._accumulator = accumulator
        self._pool = accumulator.pool
        self._client = client
        self.now = world.now  # the producer replaces it with a cheaper clock once it is open
        self._check_usable = check_usable
        self._wakeup = wakeup
        self._wake = wakeup.wake
        self._wake_by = wakeup.wake_by
        self._max_block = options.max_block_ms / 1000
        self._max_in_flight = options.max_in_flight_requests_per_connection
        self.record_bytes = RecordSizeLimit(options.max_request_size).record_bytes
        self._partitioner = options.partitioner
        self._yielded_at = -_SECONDS_BETWEEN_YIELDS
        self._begun_bytes = 0
        self._filled = 0

    def give_up_at(self) -> float:
        """Return the time until which a call that begins now may wait, in all."""
        return self.now() + self._max_block

    async def open_batch(self, queue: PartitionQueue, record_bytes: int, give_up_at: float | None = None) -> None:
        """Ensure that the queue has an open batch with room for ``record_bytes``; yield to other tasks first if due.

        Waits for memory until ``give_up_at``, by default for ``max_block_ms``. Another task may open a batch meanwhile.
        If the record fits into that batch, the memory goes back to the pool. If not, the batch is closed and a new one
        opened behind it, so that a caller that has waited for memory does not wait again behind small records of other
        tasks.
        """
        if queue.batches:
            self._note_filled()  # the last one was just closed
        now = self.now()
        if give_up_at is None:
            give_up_at = now + self._max_block
        if self._should_yield(now):
            now = await self._yield(queue, give_up_at - now)
        self._check_usable()
        if queue.open is not None and queue.open.room >= record_bytes:
            return
        size = self._accumulator.buffer_size_for(queue.topic_partition.topic, record_bytes)
        buffer = self._pool.try_allocate(size)
        if buffer is None:
            self._wake()  # when the sender runs, this caller waits for memory, so no batch lingers
            waiting_since = now
            try:
                buffer = await allocate(self._pool, size, max(0.0, give_up_at - waiting_since))
            finally:
                self._pool.note_wait(self.now() - waiting_since)
            try:
                self._check_usable()
            except BaseException:
                self._pool.release(buffer, size)
                raise
            if queue.open is not None and queue.open.room >= record_bytes:
                self._pool.release(buffer, size)
                return
            now = self.now()
        self._begin(queue, buffer, now)

    def open_batch_nowait(self, queue: PartitionQueue, record_bytes: int) -> ProducerBatch:
        """Do as `open_batch`, but raise `BufferFullError` instead of waiting, and do not yield."""
        size = self._accumulator.buffer_size_for(queue.topic_partition.topic, record_bytes)
        buffer = self._pool.try_allocate(size)
        if buffer is None:
            self._pool.exhausted += 1
            raise BufferFullError(
                f"{self._pool.in_use} of buffer_memory={self._pool.total} bytes wait for acknowledgement;"
                " let the event loop run, or await send instead"
            )
        if queue.batches:
            self._note_filled()
        return self._begin(queue, buffer, self.now())

    def next_queue(
        self,
        full: PartitionQueue,
        known: TopicState | None,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers,
        *,
        may_yield: bool = True,
    ) -> PartitionQueue | None:
        """Open a batch for a record that does not fit into the open batch of ``full``; return the batch's queue.

        With ``known`` the record goes to the sticky partition of that topic, which may change now. None when the caller
        must wait, or (with ``may_yield``) yield: then it calls `open_batch`. Raises the errors of `record_bytes` and
        ``check_usable``.
        """
        self._check_usable()
        if full.batches:
            full.close_open()
            self._note_filled()
        queue = full if known is None else known.queues[known.switch_if_due()]
        if queue.open is not None:
            return queue
        now = self.now()
        if may_yield and not self._wakeup.is_held and self._should_yield(now):  # a caller that holds the sender cannot
            return None
        size = self.record_bytes(queue, key, value, headers)
        buffer = self._pool.try_allocate(self._accumulator.buffer_size_for(queue.topic_partition.topic, size))
        if buffer is None:
            return None
        self._begin(queue, buffer, now)
        return queue

    async def _yield(self, queue: PartitionQueue, patience: float) -> float:
        """Let other tasks run, and wait at most ``patience`` seconds for the network to catch up with the partition.

        Returns the time afterwards.
        """
        pause = min(_LONGEST_PAUSE_SECONDS, patience)
        if pause > 0 and len(queue.batches) > self._max_in_flight:
            with trio.CancelScope(relative_deadline=pause):
                if queue.shortened is None:
                    queue.shortened = trio.Event()
                await queue.shortened.wait()
        else:
            await trio.lowlevel.checkpoint()
        self._yielded_at = now = self.now()
        self._begun_bytes = self._filled = 0
        return now

    def _should_yield(self, now: float) -> bool:
        """Return whether other tasks must run before this one opens another batch."""
        return (
            self._begun_bytes >= _BYTES_BETWEEN_YIELDS
            or self._filled >= self._max_in_flight
            or now - self._yielded_at >= _SECONDS_BETWEEN_YIELDS
        )

    def _note_filled(self) -> None:
        """Wake the sender: a batch is full."""
        self._filled += 1
        self._wake()

    def _begin(self, queue: PartitionQueue, buffer: bytearray, now: float) -> ProducerBatch:
        accumulator = self._accumulator
        topic, partition = queue.topic_partition
        self._begun_bytes += len(buffer)
        is_only_one = not accumulator.active
        batch = accumulator.open_batch(queue, buffer, now)
        self._client.metadata.use_topic(topic, now)
        if self._partitioner is not None:
            self._partitioner.on_new_batch(topic, partition)
        if is_only_one or accumulator.in_hurry:
            self._wake()
        else:
            # One new batch among many does not need a pass over all partitions.
            self._wake_by(now + accumulator.settings.linger, now)
        return batch
