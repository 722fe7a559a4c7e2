"""Sends Arrow record batches to topics through one producer, by column, in bounded memory. Independent of Spark."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from triokafka.errors import ConfigurationError, KafkaError
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from triokafka.client.deliveries import Deliveries
    from triokafka.client.producer.producer import Producer

# Maximum number of unsettled calls. The memory of a call until it is settled grows with its records; buffer.memory
# bounds the bytes of the records themselves.
_UNSETTLED: Final = 16


@dataclass(frozen=True, slots=True)
class WrittenRange:
    """The records written to one partition: their number, and the first and the last offset (-1 with ``acks=0``).

    Records of other writers may lie between them.
    """

    records: int
    first: int
    last: int

    def and_then(self, more: WrittenRange) -> WrittenRange:
        """Return the union of both."""
        return WrittenRange(self.records + more.records, min(self.first, more.first), max(self.last, more.last))


@dataclass(slots=True)
class Written:
    """The records that one task has written, by partition."""

    ranges: dict[TopicPartition, WrittenRange] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """The number of records in all partitions."""
        return sum(each.records for each in self.ranges.values())

    def add(self, partition: TopicPartition, more: WrittenRange) -> None:
        """Add records of a partition."""
        before = self.ranges.get(partition)
        self.ranges[partition] = more if before is None else before.and_then(more)


class RecordSink:
    """Sends batches with a column ``value`` and optionally ``key``, ``headers``, ``partition`` and ``topic``.

    Records of one partition keep their order. ``topic``, if given, overrides the column for all records.
    """

    def __init__(self, producer: Producer, topic: str | None) -> None:
        self._producer = producer
        self._topic = topic
        self._unsettled: deque[tuple[str, Deliveries]] = deque()
        self._written = Written()

    async def send(self, batch: pa.RecordBatch) -> None:
        """Pass a batch to the producer. Waits for buffer memory, at most ``max.block.ms`` per producer batch, and for
        the oldest earlier call when many are unsettled.

        Raises:
            ConfigurationError: a topic is null.
            KafkaError: a record cannot be sent, or a record of an earlier call was not delivered.
        """
        for topic, part in self._by_topic(batch):
            columns = {name: part.column(name) for name in part.schema.names}
            try:
                deliveries = await self._producer.send_many(
                    topic,
                    _as_bytes(columns["value"]),
                    keys=_unless_null(_as_bytes(columns.get("key"))),
                    partition=_unless_null(columns.get("partition")),
                    headers=_unless_null(columns.get("headers"), ()),
                )
            except (KafkaError, ValueError, TypeError) as error:
                why = _nulls_in(columns.get("headers")) or _told(error)
                raise KafkaError(f"writing to topic {topic!r} failed: {why}") from error
            self._unsettled.append((topic, deliveries))
            while len(self._unsettled) > _UNSETTLED:
                await self._settle()

    async def finish(self) -> Written:
        """Wait until all records are acknowledged, at most ``delivery.timeout.ms``, and return where they were written.

        Raises:
            KafkaError: records were not delivered; the message names topic, partition and reason.
        """
        await self._producer.flush()
        while self._unsettled:
            await self._settle()
        return self._written

    async def _settle(self) -> None:
        topic, deliveries = self._unsettled.popleft()
        try:
            ranges = await deliveries
        except Exception as error:
            failures = error.exceptions if isinstance(error, ExceptionGroup) else (error,)
            more = f" (and {len(failures) - 1} other failures)" if len(failures) > 1 else ""
            raise KafkaError(f"records for topic {topic!r} were not delivered: {_told(failures[0])}{more}") from error
        counts = deliveries.counts()
        for partition, offsets in ranges.items():
            self._written.add(partition, WrittenRange(counts[partition], offsets.first, offsets.last))

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Split the batch by topic; records of a topic keep their order."""
        if not batch.num_rows:
            return
        if self._topic is not None:
            yield self._topic, batch
            return
        column = batch.column("topic")
        if column.null_count:
            raise ConfigurationError(
                "[KAFKA_NULL_TOPIC_IN_DATA] The Kafka message data sent to the producer contains a null topic: null"
                " topic present in the data. Use the topic option for setting a default topic, or give each record one."
            )
        encoded = column.dictionary_encode()
        topics = encoded.dictionary.to_pylist()
        if len(topics) == 1:
            yield topics[0], batch
            return
        import pyarrow.compute as pc

        order = pc.array_sort_indices(encoded.indices)  # stable
        ordered = batch.take(order)
        counts = {row["values"]: row["counts"] for row in pc.value_counts(encoded.indices).to_pylist()}
        start = 0
        for number, topic in enumerate(topics):
            count = counts[number]
            yield topic, ordered.slice(start, count)
            start += count


def _as_bytes(column: Any) -> Any:
    """Cast strings to bytes without copying: a partitioner receives objects, and a ``str`` cannot be sent."""
    import pyarrow as pa

    if column is None:
        return None
    if pa.types.is_string(column.type):
        return column.cast(pa.binary())
    return column.cast(pa.large_binary()) if pa.types.is_large_string(column.type) else column


def _unless_null(column: Any, otherwise: Any = None) -> Any:
    """Return the column, or ``otherwise`` if it has no values, for which the producer has a fast path."""
    return otherwise if column is None or column.null_count == len(column) else column


def _nulls_in(headers: Any) -> str:
    """Describe nulls in the headers; empty without any. The producer's own message is about its arguments."""
    if headers is None:
        return ""
    found = headers.flatten()
    if found.null_count:
        return "a record's headers contain a null: remove it from the array"
    return "a header has no name: its key is null" if found.field("key").null_count else ""


def _told(error: BaseException) -> str:
    """Return the error's type, message and advice: for some errors the type says more than the message."""
    advice = error.advice if isinstance(error, KafkaError) else ""
    said = f"{type(error).__name__}: {error}".rstrip(": ")
    return f"{said.rstrip('.')}. {advice}" if advice and advice.rstrip(".") not in said else said
