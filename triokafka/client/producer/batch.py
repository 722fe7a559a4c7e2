"""One batch of one partition: from its first record to the response that settles all of them.

Pure: callers wait on an event that the producer's event loop provides. Times are seconds on the world's clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Protocol

from triokafka.errors import raisable_copy
from triokafka.records import BatchBuilder, set_producer_state
from triokafka.structs import RecordMetadata, TopicPartition

logger = logging.getLogger(__name__)


NO_SEQUENCE = -1

DeliveryCallback = Callable[[RecordMetadata | None, Exception | None], None]
"""Called with the metadata and None, or None and the error."""


class Event(Protocol):
    """An event of the event loop, which wakes its waiters once."""

    def set(self) -> None:
        """Wake the waiters."""

    async def wait(self) -> None:
        """Return once the event is set."""


class RecordDelivery(Protocol):
    """A record's `Delivery`, compiled or plain, as its batch uses it."""

    def metadata_in(self, batch: ProducerBatch, index: int) -> RecordMetadata:
        """Return the metadata of the record at ``index`` of an acknowledged batch."""


def _refuse(*_: object) -> int:
    """Accept no record: ``append`` of a batch whose memory was released."""
    return -1


class ProducerBatch:
    """Records of one partition that are sent and settled together.

    ``number`` orders the partition's batches; the pieces of a split batch extend its number. ``reserved`` is the number
    of bytes that the buffer pool lent for it. ``attempts`` counts the requests that carried it, ``last_error`` is why
    the last one failed, and ``leader_epoch`` is the partition's at that time. ``renumbered`` batches got another
    sequence number after their first one. ``escaped`` is an error of a callback that must end the producer's block.
    ``new_event`` makes the event that `wait` needs.

    A batch is settled exactly once, as a whole. After a split its pieces are settled instead; `piece_for` finds them.
    """

    __slots__ = (
        "_built",
        "_callbacks",
        "_count",
        "_event",
        "_observed",
        "_on_observed",
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
        "new_event",
        "number",
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
        "transactional",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        number: tuple[int, ...],
        builder: BatchBuilder,
        *,
        reserved: int,
        created_at: float,
        new_event: Callable[[], Event],
        transactional: bool = False,
    ) -> None:
        self.transactional = transactional
        self.topic_partition = topic_partition
        self.number = number
        self.builder: BatchBuilder | None = builder
        self.append: Callable[..., int] = builder.append
        self._count = 0
        self.reserved = reserved
        self.created_at = created_at
        self.new_event = new_event
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
        self._callbacks: list[tuple[int, RecordDelivery | None, Callable[..., None]]] = []
        self._event: Event | None = None
        self._observed: set[int] | None = None
        self._on_observed: Callable[[], None] | None = None

    # ---------------------------------------------------------------- filling

    @property
    def count(self) -> int:
        """Number of records."""
        return self.builder.count if self.builder is not None else self._count

    @property
    def size(self) -> int:
        """Bytes on the wire, estimated until the batch is built."""
        if self._built is not None:
            return len(self._built)
        return self.builder.estimated_size if self.builder is not None else 0

    @property
    def closed(self) -> bool:
        """Whether the batch accepts no more records."""
        return self.builder is None or self.builder.closed

    @property
    def full(self) -> bool:
        """Whether the batch has no room for a further record of usual size."""
        return self.builder is None or self.builder.full

    @property
    def room(self) -> int:
        """Bytes left for records, before compression; 0 when closed."""
        builder = self.builder
        return builder.limit - builder.size if builder is not None and not builder.closed else 0

    def close(self) -> None:
        """Close the batch: it accepts no more records."""
        if self.builder is not None:
            self.builder.close()

    @property
    def compressed(self) -> bool:
        """Whether the records are compressed and ready to be sent."""
        return self._built is not None or self.builder is None or self.builder.compressed

    def compress(self) -> None:
        """Compress the records in this thread. Raises the errors of the codec's package."""
        if self.builder is not None:
            self.builder.compress()

    # ---------------------------------------------------------------- sending

    def set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Write producer id, epoch and sequence number into the batch, also after it was built."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        if self._built is not None:
            set_producer_state(self._built, 0, producer_id, producer_epoch, base_sequence)

    def build(self) -> memoryview:
        """Return the bytes for the wire; retries send the same bytes again."""
        if self._built is None:
            assert self.builder is not None, "a batch is built before its memory is given back"
            self._built = self.builder.build(
                self.producer_id, self.producer_epoch, self.base_sequence, self.transactional
            )
        return self._built

    def release(self) -> tuple[bytearray | None, int]:
        """Drop the records; return the buffer and the number of bytes reserved for it, afterwards (None, 0).

        Users may keep deliveries for a long time; deliveries must not keep the memory alive.
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
        """Whether the batch is settled and not all of its records were written."""
        return self.error is not None

    def settle(
        self,
        base_offset: int = -1,
        log_append_time: int = -1,
        error: Exception | None = None,
        record_errors: dict[int, Exception] | None = None,
        now: float | None = None,
    ) -> bool:
        """Record the outcome, run the callbacks in record order, then wake the waiters. False if already done.

        ``record_errors`` are the errors of single records that the broker named (KIP-467). ``now`` gives the latency
        that deliveries report.
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
                # KeyboardInterrupt and the like must end the program, but only after the other callbacks.
                self.escaped = escaped
        self._callbacks.clear()
        if self._event is not None:
            self._event.set()
        return True

    def split_into(self, pieces: list[tuple[int, ProducerBatch]]) -> None:
        """Move the records to ``pieces``, each with the index of its first record; their outcomes are its own."""
        self.pieces = pieces
        for index, delivery, callback in self._callbacks:
            piece, piece_index = self.piece_for(index)
            piece._callbacks.append((piece_index, delivery, callback))
        self._callbacks.clear()
        if self._event is not None:
            self._event.set()

    def piece_for(self, index: int) -> tuple[ProducerBatch, int]:
        """Return the batch that carries the record ``index`` now, and its index there."""
        batch = self
        while batch.pieces:
            start, piece = next((start, piece) for start, piece in reversed(batch.pieces) if start <= index)
            batch, index = piece, index - start
        return batch, index

    def pieces_of(self, first: int, count: int) -> Iterator[tuple[ProducerBatch, int, int]]:
        """Yield the batches that carry ``count`` records from ``first`` on, each with first index and count."""
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
        """Return a copy of `error_for` for a caller that raises it; the failure counts as observed then."""
        error = self.error_for(index)
        if error is None:
            return None
        self.note_observed(index)
        return raisable_copy(error)

    async def wait(self) -> None:
        """Wait until the batch is settled or split."""
        if self.done or self.pieces:
            return
        if self._event is None:
            self._event = self.new_event()
        await self._event.wait()

    # ---------------------------------------------------------------- callbacks and observed failures

    def add_callback(self, delivery: RecordDelivery, index: int, callback: DeliveryCallback) -> None:
        """Call ``callback`` when the record is settled, or now."""
        batch, index = self.piece_for(index)
        if batch.done:
            batch._call(index, delivery, callback)
        else:
            batch._callbacks.append((index, delivery, callback))

    def add_settled_callback(self, index: int, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the record is settled, or now; it looks at the outcome itself."""
        batch, index = self.piece_for(index)
        if batch.done:
            batch._call(index, None, callback)
        else:
            batch._callbacks.append((index, None, callback))

    def _call(self, index: int, delivery: RecordDelivery | None, callback: Callable[..., None]) -> None:
        error = self.error_for(index)
        try:
            if error is not None:
                self.note_observed(index)
            if delivery is None:
                callback()
            elif error is not None:
                callback(None, error)
            else:
                callback(delivery.metadata_in(self, index), None)
        except Exception:
            # A callback that raises must not keep the others from running.
            logger.exception("a delivery callback for %s failed", self.topic_partition)

    def notify_observed(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once for each failed record whose failure reaches the user from now on."""
        self._on_observed = callback

    def note_observed(self, index: int) -> None:
        """Remember that this record's failure reached the user."""
        if self._observed is None:
            self._observed = set()
        if index not in self._observed:
            self._observed.add(index)
            if self._on_observed is not None:
                self._on_observed()

    @property
    def unobserved_failures(self) -> int:
        """Number of failed records whose failure has not reached the user."""
        return self.count - len(self._observed or ()) if self.failed else 0
