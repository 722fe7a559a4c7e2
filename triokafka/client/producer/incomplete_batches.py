"""Batches that are not done with: how they end, when their memory goes back, and which partitions that disturbs.

Pure: no I/O, no waiting, time is an argument (seconds on the world's clock).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from triokafka.client.producer.accumulator_settings import AccumulatorSettings
from triokafka.client.producer.batch import ProducerBatch
from triokafka.client.producer.buffer_pool import BufferPool
from triokafka.client.producer.partition_queue import PartitionQueue
from triokafka.errors import KafkaError, KafkaTimeoutError
from triokafka.structs import TopicPartition

_NEVER: Final = float("inf")


class IncompleteBatches:
    """Every batch from its making until it is settled and its memory is back; what the `Accumulator` stands on.

    ``active`` are the queues with batches in them; ``unsettled`` the batches whose deliveries wait, the oldest first;
    ``unreleased`` those that hold memory, with their queues: also given up ones that a request, or a thread, still
    uses. ``on_failed`` is told of every batch that is given up; ``on_escaped`` gets what a callback raised that is no
    `Exception`, once the batch is dealt with.
    """

    def __init__(
        self, settings: AccumulatorSettings, pool: BufferPool, on_failed: Callable[[ProducerBatch], None]
    ) -> None:
        self.settings = settings
        self.pool = pool
        self.on_escaped: Callable[[BaseException], None] = _raise
        self.active: dict[TopicPartition, PartitionQueue] = {}
        self.unsettled: dict[ProducerBatch, None] = {}
        self.unreleased: dict[ProducerBatch, PartitionQueue] = {}
        self._failure_listeners = [on_failed]
        self._troubled: dict[TopicPartition, PartitionQueue] = {}

    def add_failure_listener(self, listener: Callable[[ProducerBatch], None]) -> None:
        """Have ``listener``, too, told of every batch that is given up. It must not block."""
        self._failure_listeners.append(listener)

    @property
    def has_incomplete(self) -> bool:
        """Whether any record is not settled yet."""
        return bool(self.unsettled)

    def incomplete(self) -> list[ProducerBatch]:
        """The batches that are not settled, the oldest first."""
        return list(self.unsettled)

    @property
    def troubled(self) -> bool:
        """Whether a partition's sequence was disturbed, and `take_restarts` may have something to do."""
        return bool(self._troubled)

    def admit(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """A new batch, open for records, at the end of a queue."""
        queue.batches.append(batch)
        queue.open = batch
        self.active[queue.topic_partition] = queue
        self.unsettled[batch] = None
        self.unreleased[batch] = queue

    # ---------------------------------------------------------------- what came of it

    def queue_of(self, batch: ProducerBatch) -> PartitionQueue:
        """The queue that a batch comes from, while it holds memory."""
        return self.unreleased[batch]

    def off_wire(self, batch: ProducerBatch) -> None:
        """The request that carried the batch has ended, one way or the other."""
        batch.on_wire = False
        self.unreleased[batch].on_wire -= 1

    def acknowledge(
        self, batch: ProducerBatch, base_offset: int, log_append_time: int, now: float | None = None
    ) -> None:
        """The broker has the batch: settle it and give back its memory."""
        queue = self.unreleased[batch]
        batch.settle(base_offset, log_append_time, None, None, now)
        if self.settings.idempotent:
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
        """Give the batch up. ``fate_known``: the broker refused it. False when it had been settled before."""
        queue = self.unreleased[batch]
        told = batch.settle(error=error, record_errors=record_errors)
        self._settled(batch)
        if not batch.on_wire:
            if self.settings.idempotent:
                queue.sequences.failed(batch, fate_known=fate_known)
                self.note_trouble(queue)
            self._release(batch)
        if told:
            for listener in self._failure_listeners:
                listener(batch)
        self._let_escape(batch)
        return told

    def late_answer(self, batch: ProducerBatch, *, written: bool) -> None:
        """The request of a batch that had been given up on the wire has ended: only now may its memory be lent
        again."""
        queue = self.unreleased[batch]
        if self.settings.idempotent:
            if written:
                queue.sequences.acknowledged(batch)
            else:
                queue.sequences.failed(batch, fate_known=False)
                self.note_trouble(queue)
        self._release(batch)

    def retry(self, batch: ProducerBatch, now: float, *, chance: float) -> None:
        """Queue the batch again, at its old place, for after a back-off; ``chance`` is uniform in [0, 1)."""
        queue = self.unreleased[batch]
        batch.retry_at = now + self.settings.retry_backoff.delay(batch.attempts, chance)
        queue.put_back(batch)
        self.active[batch.topic_partition] = queue

    def split(self, batch: ProducerBatch, pieces: list[ProducerBatch], starts: list[int]) -> None:
        """Replace a batch that was too large for the broker by smaller ones at its place (KIP-126)."""
        queue = self.unreleased[batch]
        if self.settings.idempotent:
            queue.sequences.replace(batch, pieces)
        queue.ratio.reset()
        batch.split_into(list(zip(starts, pieces, strict=True)))
        for piece in pieces:
            queue.put_back(piece)
            self.unreleased[piece] = queue
        self.active[batch.topic_partition] = queue
        # The pieces are as old as the batch was, and expire at its place in the line.
        line = list(self.unsettled)
        place = line.index(batch)
        line[place : place + 1] = pieces
        self.unsettled = dict.fromkeys(line)
        # They share what was lent for the batch, whose buffer is dropped.
        lent, batch.reserved = batch.reserved, 0
        for piece in pieces:
            piece.reserved = lent // len(pieces)
        pieces[-1].reserved += lent % len(pieces)
        self._release(batch)

    def take_expired(
        self, now: float, explain: Callable[[ProducerBatch], str] = lambda batch: ""
    ) -> list[ProducerBatch]:
        """Settle what is older than the delivery timeout, queued or on the wire; in the order of their making.

        ``explain`` ends the sentence about a batch: why it could not be delivered in time.
        """
        expired: list[ProducerBatch] = []
        for batch in self.unsettled:
            # Compared as `next_expiry` does, or rounding could make the sender wait for 0 seconds again and again.
            if batch.created_at + self.settings.delivery_timeout > now:
                break
            expired.append(batch)
        # All errors before any consequence: a batch may be late because of one that is given up with it.
        for batch, error in [(batch, _expiry_error(batch, now, explain(batch))) for batch in expired]:
            if not batch.on_wire:
                self._unqueue(batch)
            self.fail(batch, error)
        return expired

    def next_expiry(self, now: float) -> float:
        """Seconds until the oldest batch expires; infinity without one."""
        for batch in self.unsettled:
            return max(0.0, batch.created_at + self.settings.delivery_timeout - now)
        return _NEVER

    def abort(self, make_error: Callable[[ProducerBatch], Exception]) -> None:
        """Fail everything that is not settled: the producer is closed, or broken."""
        for batch, error in [(batch, make_error(batch)) for batch in self.unsettled]:
            if not batch.on_wire:
                self._unqueue(batch)
            self.fail(batch, error)

    def _unqueue(self, batch: ProducerBatch) -> None:
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
            self.on_escaped(escaped)

    def _settled(self, batch: ProducerBatch) -> None:
        self.unsettled.pop(batch, None)

    def _release(self, batch: ProducerBatch) -> None:
        if batch.in_thread:
            return  # its memory is in use; `out_of_thread` comes back here
        self.unreleased.pop(batch, None)
        buffer, reserved = batch.release()
        if reserved:
            self.pool.release(buffer, reserved)

    def discard(self, batch: ProducerBatch) -> None:
        """Drop a batch without records: its first one turned out to be no record while it was written."""
        self._unqueue(batch)
        batch.settle()
        self._settled(batch)
        self._release(batch)

    def out_of_thread(self, batch: ProducerBatch, error: Exception | None) -> None:
        """A thread has let go of a batch that it compressed, or on which it failed."""
        if batch.done:
            self._release(batch)  # given up meanwhile, when the thread still used the memory
        elif error is not None:
            self.fail_compression(batch, error)

    def fail_compression(self, batch: ProducerBatch, reason: Exception) -> None:
        error = KafkaError(
            f"{batch.count} records for {batch.topic_partition} could not be compressed with"
            f" {self.settings.compression_type}: {reason!r}"
        )
        error.__cause__ = reason
        self._unqueue(batch)
        self.fail(batch, error)

    # ---------------------------------------------------------------- idempotence

    def disable_idempotence(self) -> None:
        """Go on without sequence numbers: the brokers do not know them."""
        self.settings = replace(self.settings, idempotent=False)

    def note_trouble(self, queue: PartitionQueue) -> None:
        """A partition's sequence was disturbed: `take_restarts` is to look at it."""
        self._troubled[queue.topic_partition] = queue

    def take_restarts(self) -> list[PartitionQueue]:
        """Partitions whose sequence must begin anew under a new epoch, and may now. The caller restarts them."""
        restarts: list[PartitionQueue] = []
        for topic_partition, queue in list(self._troubled.items()):
            sequences = queue.sequences
            sequences.resolve()
            if sequences.bump_due:
                restarts.append(queue)
            if not sequences.unresolved and (sequences.bump_due or not sequences.bump_wanted):
                del self._troubled[topic_partition]
        return restarts


def _raise(error: BaseException) -> None:
    raise error


def _expiry_error(batch: ProducerBatch, now: float, why: str) -> KafkaTimeoutError:
    waited = round((now - batch.created_at) * 1000)
    tried = f"after {batch.attempts} attempts" if batch.attempts else "never sent"
    error = KafkaTimeoutError(
        f"{batch.count} records for {batch.topic_partition} were not acknowledged within {waited} ms"
        f" (delivery_timeout_ms), {tried}{why}"
    )
    error.__cause__ = batch.last_error
    return error
