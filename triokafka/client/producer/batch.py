"""One batch of one partition: from the first record that opens it to the answer that settles all of them.

Pure but for `ProducerBatch.wait`. Times are seconds on the world's clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import trio

from triokafka.client.deliveries import Delivery, DeliveryCallback
from triokafka.errors import raisable_copy
from triokafka.records import BatchBuilder, set_producer_state
from triokafka.structs import TopicPartition
from triokafka.trio_context import require_trio

logger = logging.getLogger(__name__)


NO_SEQUENCE = -1


def _refuse(*_: object) -> int:
    """What ``append`` does once the memory is given back."""
    return -1


class ProducerBatch:
    """Records of one partition that are sent and settled together.

    ``number`` is the order in which the partition's batches are to be written; pieces of a split one extend its
    number. ``reserved`` is what the buffer pool lent for it, in bytes. ``attempts`` counts requests that carried it,
    ``last_error`` is why the last failed; ``escaped`` is what a callback raised that must not be swallowed.
    ``leader_epoch`` is the partition's as known at the last. ``renumbered``: it got another sequence number after one.
    ``on_observed`` is called once for each failed record of which somebody is told.
    Settled exactly once, as a whole; when it was split, its pieces are settled instead and
    `piece_for` leads to them.
    """

    __slots__ = (
        "_built",
        "_callbacks",
        "_count",
        "_event",
        "_observed",
        "append",
        "attempts",
        "base_offset",
        "base_sequence",
        "builder",
        "created_at",
        "done",
        "error",
        "escaped",
        "in_thread",
        "last_error",
        "leader_epoch",
        "log_append_time",
        "number",
        "on_observed",
        "on_wire",
        "pieces",
        "producer_epoch",
        "producer_id",
        "record_errors",
        "renumbered",
        "reserved",
        "retry_at",
        "settled_at",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        number: tuple[int, ...],
        builder: BatchBuilder,
        *,
        reserved: int,
        created_at: float,
    ) -> None:
        self.topic_partition = topic_partition
        self.number = number
        self.builder: BatchBuilder | None = builder
        self.append: Callable[..., int] = builder.append
        self._count = 0
        self.reserved = reserved
        self.created_at = created_at
        self.retry_at = created_at
        self.attempts = 0
        self.on_wire = False
        self.in_thread = False
        self.leader_epoch = -1
        self.producer_id = -1
        self.producer_epoch = -1
        self.base_sequence = NO_SEQUENCE
        self.renumbered = False
        self.done = False
        self.error: Exception | None = None
        self.last_error: Exception | None = None
        self.escaped: BaseException | None = None
        self.record_errors: dict[int, Exception] = {}
        self.base_offset = -1
        self.log_append_time = -1
        self.settled_at = created_at
        self.pieces: list[tuple[int, ProducerBatch]] = []
        self._built: memoryview | None = None
        self._callbacks: list[tuple[int, Delivery, DeliveryCallback]] = []
        self._event: trio.Event | None = None
        self._observed: set[int] | None = None
        self.on_observed: Callable[[], None] | None = None

    # ---------------------------------------------------------------- filling

    @property
    def count(self) -> int:
        """Number of records."""
        return self.builder.count if self.builder is not None else self._count

    @property
    def size(self) -> int:
        """Bytes on the wire, estimated until it is built."""
        if self._built is not None:
            return len(self._built)
        return self.builder.estimated_size if self.builder is not None else 0

    @property
    def closed(self) -> bool:
        """Whether it takes no more records."""
        return self.builder is None or self.builder.closed

    @property
    def full(self) -> bool:
        """Whether there is no use in waiting for more records."""
        return self.builder is None or self.builder.full

    @property
    def room(self) -> int:
        """Bytes that records may still take before compression; 0 when closed."""
        builder = self.builder
        return builder.limit - builder.size if builder is not None and not builder.closed else 0

    def close(self) -> None:
        """Take no more records."""
        if self.builder is not None:
            self.builder.close()

    @property
    def compressed(self) -> bool:
        """Whether the records need not be compressed any more before they are sent."""
        return self._built is not None or self.builder is None or self.builder.compressed

    def compress(self) -> None:
        """Compress the records here and now. Raises what the codec's package does."""
        if self.builder is not None:
            self.builder.compress()

    @property
    def in_retry(self) -> bool:
        """Whether it was sent before."""
        return self.attempts > 0

    # ---------------------------------------------------------------- sending

    def set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Give the batch its place in the producer's sequence, also when it was built before."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        if self._built is not None:
            set_producer_state(self._built, 0, producer_id, producer_epoch, base_sequence)

    def build(self) -> memoryview:
        """The bytes for the wire; retries send the same bytes again."""
        if self._built is None:
            assert self.builder is not None, "a batch is built before its memory is given back"
            self._built = self.builder.build(self.producer_id, self.producer_epoch, self.base_sequence)
        return self._built

    def release(self) -> tuple[bytearray | None, int]:
        """Let go of the records: the buffer and what was reserved for it, once; (None, 0) afterwards.

        Deliveries may be kept for long, and must not keep the memory with them.
        """
        reserved, self.reserved = self.reserved, 0
        if self.builder is None:
            return None, 0
        buffer = self.builder.buffer
        self._count = self.builder.count
        self.builder = None
        self.append = _refuse  # a bound method keeps its object
        self._built = None
        return buffer, reserved

    # ---------------------------------------------------------------- settling

    @property
    def failed(self) -> bool:
        """Whether it is settled, and not all of its records were written."""
        return self.error is not None

    def settle(
        self,
        base_offset: int = -1,
        log_append_time: int = -1,
        error: Exception | None = None,
        record_errors: dict[int, Exception] | None = None,
        now: float | None = None,
    ) -> bool:
        """End with an offset or an error: run the callbacks in record order, then wake who waits. False if done before.

        ``record_errors`` are the errors of single records, where the broker named them (KIP-467). ``now`` is for the
        latency that deliveries report.
        """
        if self.done:
            return False
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        if now is not None:
            self.settled_at = now
        self.error = error
        self.record_errors = record_errors or {}
        self.done = True
        self.last_error = None
        for index, delivery, callback in self._callbacks:
            try:
                self._call(index, delivery, callback)
            except BaseException as escaped:
                # What is no Exception is to end the program, or a test: but not before everybody was told.
                self.escaped = escaped
        self._callbacks.clear()
        if self._event is not None:
            self._event.set()
        return True

    def split_into(self, pieces: list[tuple[int, ProducerBatch]]) -> None:
        """Hand the records to ``pieces``, each with the index of its first record; their settling is this one's."""
        self.pieces = pieces
        for index, delivery, callback in self._callbacks:
            piece, piece_index = self.piece_for(index)
            piece._callbacks.append((piece_index, delivery, callback))
        self._callbacks.clear()
        if self._event is not None:
            self._event.set()

    def piece_for(self, index: int) -> tuple[ProducerBatch, int]:
        """The batch that carries the record ``index`` now, and its index there."""
        batch = self
        while batch.pieces:
            start, piece = next((start, piece) for start, piece in reversed(batch.pieces) if start <= index)
            batch, index = piece, index - start
        return batch, index

    def pieces_of(self, first: int, count: int) -> Iterator[tuple[ProducerBatch, int, int]]:
        """The batches that carry ``count`` records from ``first`` on, each with its first index and number of them."""
        end = first + count
        while first < end:
            batch, index = self.piece_for(first)
            taken = min(end - first, batch.count - index)
            yield batch, index, taken
            first += taken

    def error_for(self, index: int) -> Exception | None:
        """The error of one record of a settled batch."""
        return self.record_errors.get(index, self.error)

    def error_to_raise(self, index: int) -> Exception | None:
        """As `error_for`, for one caller who raises it and so was told: a copy of its own."""
        error = self.error_for(index)
        if error is None:
            return None
        self.note_observed(index)
        return raisable_copy(error)

    async def wait(self) -> None:
        """Wait until it is settled or split."""
        if self.done or self.pieces:
            return
        if self._event is None:
            self._event = trio.Event()
        try:
            await self._event.wait()
        except RuntimeError:
            require_trio("Awaiting a delivery")
            raise

    # ---------------------------------------------------------------- who has seen a failure

    def add_callback(self, delivery: Delivery, index: int, callback: DeliveryCallback) -> None:
        """Call ``callback`` when the record is settled, or now."""
        batch, index = self.piece_for(index)
        if batch.done:
            batch._call(index, delivery, callback)
        else:
            batch._callbacks.append((index, delivery, callback))

    def _call(self, index: int, delivery: Delivery, callback: DeliveryCallback) -> None:
        error = self.error_for(index)
        try:
            if error is not None:
                self.note_observed(index)
                callback(None, error)
            else:
                callback(delivery.metadata_in(self, index), None)
        except Exception:
            # One bad callback must not keep the others from running.
            logger.exception("a delivery callback for %s failed", self.topic_partition)

    def note_observed(self, index: int) -> None:
        """Remember that somebody was told of this record's failure."""
        if self._observed is None:
            self._observed = set()
        if index not in self._observed:
            self._observed.add(index)
            if self.on_observed is not None:
                self.on_observed()

    @property
    def unobserved_failures(self) -> int:
        """Number of failed records of which nobody was told."""
        return self.count - len(self._observed or ()) if self.failed else 0
