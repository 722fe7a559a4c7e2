"""Batches of `Consumer.batches`: the bytes of one partition from one fetch, decoded at the user's request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from triokafka.client.consumer.completed_fetch import CompletedFetch
from triokafka.records import ConsumerRecord, RecordDecoder
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa


class FetchedBatch:
    """Records of one partition, in order, from ``start_offset`` up to but not including ``next_offset``.

    The batch is not decoded before a method is called; each call decodes again. Checksums are verified. The batch may
    hold no record: after compaction, or if all its transactions were aborted. Keys and values are bytes; deserializers
    are not applied.
    """

    __slots__ = (
        "_aborted",
        "_decompressor",
        "_max_decompressed",
        "_records",
        "leader_epoch",
        "next_offset",
        "start_offset",
        "topic_partition",
    )

    def __init__(self, data: CompletedFetch, next_offset: int, size: int, leader_epoch: int) -> None:
        self.topic_partition: TopicPartition = data.partition
        self.start_offset = data.position
        self.next_offset = next_offset
        self.leader_epoch = leader_epoch
        """The leader epoch before ``next_offset``, also where no record is returned; -1 if it is unknown."""
        self._records = data.records if size == data.size else memoryview(data.records)[:size]
        self._aborted = data.aborted
        self._decompressor = data.decompressor
        self._max_decompressed = data.max_decompressed

    def _decoder(self) -> RecordDecoder:
        return RecordDecoder(
            self._records,
            topic=self.topic_partition.topic,
            partition=self.topic_partition.partition,
            from_offset=self.start_offset,
            check_crc=False,
            aborted=self._aborted,
            decompressor=self._decompressor,
            max_decompressed=self._max_decompressed,
        )

    @property
    def topic(self) -> str:
        """The topic."""
        return self.topic_partition.topic

    @property
    def partition(self) -> int:
        """The partition."""
        return self.topic_partition.partition

    def records(self) -> list[ConsumerRecord]:
        """Return all records. Raises `CorruptRecordError` if a record is invalid despite a valid checksum."""
        decoder = self._decoder()
        records = decoder.take()
        decoder.take(1)
        return records

    def values(self) -> list[Any]:
        """Return the values of all records."""
        return [record.value for record in self.records()]

    def to_arrow(
        self, *, columns: Sequence[str] | None = None, values: Literal["binary", "view"] = "binary"
    ) -> pa.RecordBatch:
        """Return all records as one Arrow record batch; see `Consumer.poll_arrow` for the columns."""
        from triokafka.records.arrow import ArrowBuilder

        builder = ArrowBuilder(columns, values=values)
        decoder = self._decoder()
        builder.add(decoder)
        decoder.take(1)
        return builder.finish()

    def __repr__(self) -> str:
        return f"<FetchedBatch {self.topic_partition} offsets {self.start_offset} to {self.next_offset - 1}>"


class Batches:
    """The iterator that `Consumer.batches` returns."""

    def __init__(self, next_batch: Callable[[], Awaitable[FetchedBatch]]) -> None:
        self._next_batch = next_batch

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> FetchedBatch:
        """Return the next batch; wait without limit. The previous one counts as finished. Cancelling loses nothing."""
        return await self._next_batch()
