"""Incomplete batches: their outcomes, the release of their memory, and the sequences that failures disturb.

Pure: no I/O, no waiting, time is an argument (seconds on the world's clock).
"""

from __future__ import annotations

from collections.abc import Callable

from triokafka.client.producer.accumulator_settings import AccumulatorSettings
from triokafka.client.producer.batch import ProducerBatch
from triokafka.client.producer.buffer_pool import BufferPool
from triokafka.client.producer.partition_queue import PartitionQueue
from triokafka.errors import KafkaError
from triokafka.structs import TopicPartition


def _raise(error: BaseException) -> None:
    raise error


class IncompleteBatches:
    """Every batch from its creation until it is settled and its memory is released.

    ``idempotent`` becomes False if the brokers do not support sequence numbers. ``active`` are the queues with
    unsent batches, ``unsettled`` the batches without an outcome, the oldest first, and ``unreleased`` those that hold
    memory, with their queues. A batch that was given up holds its memory while a request or a thread still uses it.
    ``on_failed`` gets every batch that is given up, once it is settled. ``on_escaped`` gets an error of a callback that
    is no `Exception`, once its batch is settled.

    From `begin_abort` to `end_abort` a transaction is being aborted: batches fail instead of a retry.
    """

    def __init__(
        self,
        settings: AccumulatorSettings,
        pool: BufferPool,
        on_failed: Callable[[ProducerBatch], None],
        on_escaped: Callable[[BaseException], None] = _raise,
    ) -> None:
        self.settings = settings
        self.idempotent = settings.idempotent
        self.pool = pool
        self._on_escaped = on_escaped
        self.active: dict[TopicPartition, PartitionQueue] = {}
        self.unsettled: dict[ProducerBatch, None] = {}
        self.unreleased: dict[ProducerBatch, PartitionQueue] = {}
        self._failure_listeners = [on_failed]
        self._disturbed: dict[TopicPartition, PartitionQueue] = {}
        self._on_admitted: Callable[[PartitionQueue], None] | None = None
        self._on_progress: Callable[[], None] | None = None
        self._abort_error: Exception | None = None

    def add_failure_listener(self, listener: Callable[[ProducerBatch], None]) -> None:
        """Call ``listener``, too, with every batch that is given up. It must not block."""
        self._failure_listeners.append(listener)

    def watch(self, on_admitted: Callable[[PartitionQueue], None], on_progress: Callable[[], None]) -> None:
        """Call ``on_admitted`` with the queue of each new batch, and ``on_progress`` when a batch was released or waits
        for a retry: for the one `Transactions` of a producer.
        """
        self._on_admitted = on_admitted
        self._on_progress = on_progress

    def all(self) -> list[ProducerBatch]:
        """Return the batches without an outcome, the oldest first."""
        return list(self.unsettled)

    @property
    def has_disturbed(self) -> bool:
        """Whether a partition's sequence was disturbed, so that `take_restarts` may find something."""
        return bool(self._disturbed)

    def admit(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Add a new batch, open for records, at the end of a queue."""
        queue.batches.append(batch)
        queue.open = batch
        self.active[queue.topic_partition] = queue
        self.unsettled[batch] = None
        self.unreleased[batch] = queue
        if self._on_admitted is not None:
            self._on_admitted(queue)

    # ---------------------------------------------------------------- outcomes

    def queue_of(self, batch: ProducerBatch) -> PartitionQueue:
        """Return the queue of a batch that holds memory."""
        return self.unreleased[batch]

    def off_wire(self, batch: ProducerBatch) -> None:
        """Note that the request with the batch has ended."""
        batch.on_wire = False
        self.unreleased[batch].on_wire -= 1

    def acknowledge(
        self, batch: ProducerBatch, base_offset: int, log_append_time: int, now: float | None = None
    ) -> None:
        """Settle a batch that the broker has written, and release its memory."""
        queue = self.unreleased[batch]
        batch.settle(base_offset, log_append_time, None, None, now)
        if self.idempotent:
            queue.sequences.acknowledged(batch)
        self.unsettled.pop(batch, None)
        self._release(batch)
        if batch.escaped is not None:
            self._let_escape(batch)

    def fail(
        self,
        batch: ProducerBatch,
        error: Exception,
        *,
        fate_known: bool = False,
        record_errors: dict[int, Exception] | None = None,
    ) -> bool:
        """Fail the batch. ``fate_known``: the broker refused it. Returns False if it was settled before."""
        queue = self.unreleased[batch]
        newly_settled = batch.settle(error=error, record_errors=record_errors)
        self._settled(batch)
        if not batch.on_wire:
            if self.idempotent:
                queue.sequences.failed(batch, fate_known=fate_known)
                self.note_disturbed(queue)
            self._release(batch)
        if newly_settled:
            for listener in self._failure_listeners:
                listener(batch)
        self._let_escape(batch)
        return newly_settled

    def late_answer(self, batch: ProducerBatch, *, written: bool) -> None:
        """Release the memory of a batch that was given up while a request carried it, now that the request has
        ended."""
        queue = self.unreleased[batch]
        if self.idempotent:
            if written:
                queue.sequences.acknowledged(batch)
            else:
                queue.sequences.failed(batch, fate_known=False)
                self.note_disturbed(queue)
        self._release(batch)

    def retry(self, batch: ProducerBatch, now: float, *, wait: float) -> None:
        """Queue the batch again at its old place, to be sent after ``wait`` seconds."""
        if self._abort_error is not None:
            self.fail(batch, self._abort_error)
            return
        queue = self.unreleased[batch]
        batch.retry_at = now + wait
        queue.put_back(batch)
        self.active[batch.topic_partition] = queue
        if self._on_progress is not None:
            self._on_progress()

    def split(self, batch: ProducerBatch, pieces: list[ProducerBatch], starts: list[int]) -> None:
        """Replace a batch that was too large for the broker by smaller ones at its place (KIP-126)."""
        if self._abort_error is not None:
            self.fail(batch, self._abort_error)
            return
        queue = self.unreleased[batch]
        if self.idempotent:
            queue.sequences.replace(batch, pieces)
        queue.ratio.reset()
        batch.split_into(list(zip(starts, pieces, strict=True)))
        for piece in pieces:
            queue.put_back(piece)
            self.unreleased[piece] = queue
        self.active[batch.topic_partition] = queue
        # The pieces are as old as the batch, and expire at the same time.
        line = list(self.unsettled)
        place = line.index(batch)
        line[place : place + 1] = pieces
        self.unsettled = dict.fromkeys(line)
        # They share the bytes lent for the batch, whose buffer is dropped.
        lent, batch.reserved = batch.reserved, 0
        for piece in pieces:
            piece.reserved = lent // len(pieces)
        pieces[-1].reserved += lent % len(pieces)
        self._release(batch)

    def abort(self, make_error: Callable[[ProducerBatch], Exception]) -> None:
        """Fail all unsettled batches: the producer is closed or has failed."""
        for batch, error in [(batch, make_error(batch)) for batch in self.unsettled]:
            if not batch.on_wire:
                self.unqueue(batch)
            self.fail(batch, error)

    def begin_abort(self, error: Exception) -> None:
        """Fail all unsettled batches that no request carries, and later those whose request ends without success."""
        self._abort_error = error
        for batch in [batch for batch in self.unsettled if not batch.on_wire]:
            self.unqueue(batch)
            self.fail(batch, error)

    def end_abort(self) -> None:
        """Retry failed batches again; does nothing without an abort."""
        self._abort_error = None

    def unqueue(self, batch: ProducerBatch) -> None:
        """Take a batch that is to be settled out of its queue."""
        queue = self.unreleased[batch]
        batch.close()
        if queue.compressor is not None:
            queue.compressor.withdraw(batch)
        if batch in queue.batches:
            queue.batches.remove(batch)
        if queue.open is batch:
            queue.open = None
        if not queue.batches:
            self.active.pop(batch.topic_partition, None)

    def _let_escape(self, batch: ProducerBatch) -> None:
        escaped, batch.escaped = batch.escaped, None
        if escaped is not None:
            self._on_escaped(escaped)

    def _settled(self, batch: ProducerBatch) -> None:
        self.unsettled.pop(batch, None)

    def _release(self, batch: ProducerBatch) -> None:
        if batch.in_thread:
            return  # a thread uses the memory; `out_of_thread` releases it
        self.unreleased.pop(batch, None)
        buffer, reserved = batch.release()
        if reserved:
            self.pool.release(buffer, reserved)
        if self._on_progress is not None:
            self._on_progress()

    def discard(self, batch: ProducerBatch) -> None:
        """Drop a batch without records: writing its first one failed."""
        self.unqueue(batch)
        batch.settle()
        self._settled(batch)
        self._release(batch)

    def out_of_thread(self, batch: ProducerBatch, error: Exception | None) -> None:
        """Take back a batch from the thread that compressed it, or failed to."""
        if batch.done:
            self._release(batch)  # given up meanwhile
        elif error is not None:
            self.fail_compression(batch, error)

    def fail_compression(self, batch: ProducerBatch, reason: Exception) -> None:
        """Give a batch up that its codec could not compress."""
        error = KafkaError(
            f"{batch.count} records for {batch.topic_partition} could not be compressed with"
            f" {self.settings.compression_type}: {reason!r}"
        )
        error.__cause__ = reason
        self.unqueue(batch)
        self.fail(batch, error)

    # ---------------------------------------------------------------- idempotence

    def disable_idempotence(self) -> None:
        """Continue without sequence numbers, which the brokers do not support."""
        self.idempotent = False

    def forget_disturbed(self) -> None:
        """Forget disturbed sequences: all partitions begin a new epoch."""
        self._disturbed.clear()

    def note_disturbed(self, queue: PartitionQueue) -> None:
        """Add a partition whose sequence was disturbed to the candidates of `take_restarts`."""
        self._disturbed[queue.topic_partition] = queue

    def take_restarts(self) -> list[PartitionQueue]:
        """Return the partitions whose sequence must and can restart under a new epoch; the caller restarts them."""
        restarts: list[PartitionQueue] = []
        for topic_partition, queue in list(self._disturbed.items()):
            sequences = queue.sequences
            sequences.resolve()
            if sequences.bump_due:
                restarts.append(queue)
            if not sequences.unresolved and (sequences.bump_due or not sequences.bump_wanted):
                del self._disturbed[topic_partition]
        return restarts
