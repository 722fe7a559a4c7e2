"""The deliveries of one or many records, which sends return. They cost nothing until they are awaited."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple

from triokafka.client.producer.batch import DeliveryCallback, ProducerBatch
from triokafka.client.producer.kernel import Delivery
from triokafka.errors import raisable_copy
from triokafka.structs import RecordMetadata, TopicPartition

_CREATE_TIME: Final = -1


class FilteredDelivery(Delivery):
    """The delivery of a record that an interceptor dropped: awaiting it returns offset -1."""

    __slots__ = ("_topic",)

    def __init__(self, topic: str) -> None:
        self._topic = topic

    @property
    def topic(self) -> str:
        """The topic of the record."""
        return self._topic

    @property
    def partition(self) -> int:
        """Always -1: no partition was chosen."""
        return -1

    @property
    def done(self) -> bool:
        """Always True."""
        return True

    def result(self) -> RecordMetadata:
        """Metadata with partition, offset and timestamp -1."""
        return RecordMetadata(self._topic, -1, -1, -1)

    async def _wait(self) -> RecordMetadata:
        return self.result()

    def add_callback(self, callback: DeliveryCallback) -> None:
        """Do nothing: a dropped record gets no acknowledgement."""


class OffsetRange(NamedTuple):
    """The first and the last offset of the records of one `Deliveries` in one partition; -1 with ``acks=0``."""

    first: int
    last: int


class _Span(NamedTuple):
    batch: ProducerBatch
    first: int
    records: int
    timestamp: int
    age: float


class DeliveredColumns(NamedTuple):
    """Properties that differ between the records of one `Deliveries`, in their order; None if all are equal.

    With ``partitions`` the records are added in order within each partition, otherwise in order overall.
    """

    partitions: array[int] | None = None
    timestamps: array[int] | None = None
    key_sizes: array[int] | None = None
    value_sizes: array[int] | None = None


_NO_COLUMNS: Final = DeliveredColumns()


class AcknowledgedColumns(NamedTuple):
    """Offsets, timestamps in milliseconds and sizes in bytes (-1 for null) of records in their order. A column may be
    an infinite iterator if all records have the same value."""

    offsets: Iterable[int]
    timestamps: Iterable[int]
    key_sizes: Iterable[int]
    value_sizes: Iterable[int]


class DeliveredPart:
    """The records of one `Deliveries` that are in one batch. ``positions`` are their positions among all, ascending.

    For callers that need the outcome of every record without an object for each.
    """

    __slots__ = ("_columns", "_span", "positions")

    def __init__(self, span: _Span, positions: Sequence[int], columns: DeliveredColumns) -> None:
        self.positions = positions
        self._span = span
        self._columns = columns

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of the batch."""
        return self._span.batch.topic_partition

    @property
    def stamped_by_broker(self) -> bool:
        """Whether the broker replaced the timestamps (``message.timestamp.type=LogAppendTime``)."""
        return self._span.batch.log_append_time != _CREATE_TIME

    def add_callback(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the last of these records is settled (usually all are then), or now if it is."""
        span = self._span
        span.batch.add_settled_callback(span.first + span.records - 1, callback)

    @property
    def is_written(self) -> bool:
        """Whether all these records were written with one batch; otherwise each `Delivery` has its own outcome."""
        batch = self._span.batch
        return batch.done and not batch.failed and not batch.pieces

    @property
    def base_offset(self) -> int:
        """The offset of the first record; the others follow. -1 if it is unknown. Only if it `is_written`."""
        base = self._span.batch.base_offset
        return base + self._span.first if base >= 0 else -1

    @property
    def timestamps(self) -> Sequence[int] | int:
        """The timestamps in milliseconds, or one for all. Only if it `is_written`."""
        column = self._columns.timestamps
        if self.stamped_by_broker:
            return self._span.batch.log_append_time
        if column is None:
            return self._span.timestamp
        positions = self.positions
        if isinstance(positions, range):
            return column[positions.start : positions.stop]
        return [column[position] for position in positions]

    def written(self) -> tuple[TopicPartition, int, Sequence[int] | int, bool] | None:
        """Return `topic_partition`, `base_offset`, `timestamps` and `stamped_by_broker`; None unless it `is_written`.

        One call costs less than one for each.
        """
        batch, first, _, timestamp, _ = self._span
        if not batch.done or batch.error is not None or batch.pieces:
            return None
        base, stamp = batch.base_offset, batch.log_append_time
        offset = base + first if base >= 0 else -1
        if stamp == _CREATE_TIME and self._columns.timestamps is None:
            return batch.topic_partition, offset, timestamp, False
        return batch.topic_partition, offset, self.timestamps, stamp != _CREATE_TIME

    def acknowledged(self, begin: int, end: int) -> AcknowledgedColumns | None:
        """Return the outcome of the records from ``begin`` to before ``end`` in ``positions``. None if they were not
        all written with one batch; then each `Delivery` has its own outcome."""
        span = self._span
        batch = span.batch
        if not self.is_written:
            return None
        first = self.base_offset
        columns, positions = self._columns, self.positions[begin:end]
        timestamps: Iterable[int]
        if self.stamped_by_broker:
            timestamps = repeat(batch.log_append_time)
        else:
            timestamps = _column(columns.timestamps, positions, span.timestamp)
        return AcknowledgedColumns(
            range(first + begin, first + end) if first >= 0 else repeat(-1),
            timestamps,
            _column(columns.key_sizes, positions, -1),
            _column(columns.value_sizes, positions, -1),
        )


class Deliveries:
    """The outcome of many records that were sent together.

    Awaiting it returns an `OffsetRange` per partition once all records are acknowledged. If records failed, it raises
    the error if there is only one, otherwise an `ExceptionGroup`. Iterating yields one `Delivery` per record, in the
    order of the arguments, also with several partitions.
    """

    __slots__ = ("_columns", "_count", "_singles", "_spans")

    def __init__(self, columns: DeliveredColumns | None = None) -> None:
        self._columns = columns if columns is not None else _NO_COLUMNS
        self._spans: list[_Span] = []
        self._singles: list[Delivery] = []
        self._count = 0

    def add(self, batch: ProducerBatch, first: int, count: int, timestamp: int, age: float = 0.0) -> None:
        """Add ``count`` records in ``batch``, ``age`` seconds old, from its index ``first`` on. Called by the
        producer."""
        self._spans.append(_Span(batch, first, count, timestamp, age))
        self._count += count

    def add_one(self, delivery: Delivery) -> None:
        """Add one record that was sent by itself. Called by the producer."""
        self._singles.append(delivery)
        self._count += 1

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Delivery]:
        columns = self._columns
        places = _places(self._spans) if columns.partitions is None else self._places_in_order()
        for position, (span, index) in enumerate(places):
            yield Delivery(
                span.batch,
                index,
                span.timestamp if columns.timestamps is None else columns.timestamps[position],
                -1 if columns.key_sizes is None else columns.key_sizes[position],
                -1 if columns.value_sizes is None else columns.value_sizes[position],
                span.age,
            )
        yield from self._singles

    def parts(self) -> Iterator[DeliveredPart]:
        """Yield the records by batch. Records that were sent one by one are left out."""
        columns = self._columns
        if columns.partitions is None:
            begin = 0
            for span in self._spans:
                yield DeliveredPart(span, range(begin, begin + span.records), columns)
                begin += span.records
            return
        of_partition: dict[int, list[int]] = {}
        for position, partition in enumerate(self._chosen_partitions()):
            of_partition.setdefault(partition, []).append(position)
        seen: dict[int, int] = {}
        for span in self._spans:
            number = span.batch.topic_partition.partition
            first = seen.get(number, 0)
            seen[number] = end = first + span.records
            yield DeliveredPart(span, of_partition[number][first:end], columns)

    def counts(self) -> dict[TopicPartition, int]:
        """The number of records for each partition, delivered or not."""
        found: dict[TopicPartition, int] = {}
        for span in self._spans:
            partition = span.batch.topic_partition
            found[partition] = found.get(partition, 0) + span.records
        for delivery in self._singles:
            partition = TopicPartition(delivery.topic, delivery.partition)
            found[partition] = found.get(partition, 0) + 1
        return found

    def _chosen_partitions(self) -> Sequence[int]:
        """Return the partitions of the accepted records; the column has room for all given ones."""
        return (self._columns.partitions or ())[: self._count]

    def _places_in_order(self) -> Iterator[tuple[_Span, int]]:
        spans: dict[int, list[_Span]] = {}
        for span in self._spans:
            spans.setdefault(span.batch.topic_partition.partition, []).append(span)
        places = {partition: _places(those) for partition, those in spans.items()}
        return (next(places[partition]) for partition in self._chosen_partitions())

    @property
    def done(self) -> bool:
        """Whether all records are acknowledged or have failed."""
        return all(piece.done for span in self._spans for piece, _, _ in _pieces(span)) and all(
            delivery.done for delivery in self._singles
        )

    async def _wait(self) -> dict[TopicPartition, OffsetRange]:
        found: dict[TopicPartition, OffsetRange] = {}
        errors: list[Exception] = []
        for span in self._spans:
            while (waiting := next((piece for piece, _, _ in _pieces(span) if not piece.done), None)) is not None:
                await waiting.wait()
            for piece, first, count in _pieces(span):
                if piece.failed:
                    for index in range(first, first + count):
                        piece.note_observed(index)
                        _add_error(errors, piece.error_for(index))
                else:
                    base = piece.base_offset
                    offsets = (base + first, base + first + count - 1) if base >= 0 else (-1, -1)
                    _add_range(found, piece.topic_partition, *offsets)
        for delivery in self._singles:
            try:
                metadata = await delivery
            except Exception as error:
                _add_error(errors, error)
            else:
                _add_range(found, metadata.topic_partition, metadata.offset, metadata.offset)
        if errors:
            raised = [raisable_copy(error) for error in errors]
            raise raised[0] if len(raised) == 1 else ExceptionGroup("records were not delivered", raised)
        return found

    def __await__(self) -> Generator[Any, Any, dict[TopicPartition, OffsetRange]]:
        return self._wait().__await__()


def _column(column: array[int] | None, positions: Sequence[int], missing: int) -> Iterable[int]:
    if column is None:
        return repeat(missing)
    if isinstance(positions, range):
        return column[positions.start : positions.stop]
    return map(column.__getitem__, positions)


def _places(spans: list[_Span]) -> Iterator[tuple[_Span, int]]:
    return ((span, index) for span in spans for index in range(span.first, span.first + span.records))


def _pieces(span: _Span) -> Iterator[tuple[ProducerBatch, int, int]]:
    return span.batch.pieces_of(span.first, span.records)


def _add_error(errors: list[Exception], error: Exception | None) -> None:
    # Deliveries raise copies, so one failure may be several objects.
    if error is not None and not any(
        known is error or (type(known) is type(error) and known.args == error.args) for known in errors
    ):
        errors.append(error)


def _add_range(found: dict[TopicPartition, OffsetRange], partition: TopicPartition, low: int, high: int) -> None:
    before = found.get(partition)
    if before is not None:
        low, high = min(before.first, low), max(before.last, high)
    found[partition] = OffsetRange(low, high)


__all__ = [
    "AcknowledgedColumns",
    "DeliveredColumns",
    "DeliveredPart",
    "Deliveries",
    "Delivery",
    "DeliveryCallback",
    "FilteredDelivery",
    "OffsetRange",
]
