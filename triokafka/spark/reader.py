"""One batch read: ranges are planned on the driver, and each is read by one Spark task as Arrow record batches."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import trio
from pyspark.sql.datasource import DataSourceReader, InputPartition

import triokafka
from triokafka.errors import KafkaError, KafkaTimeoutError, UnknownTopicOrPartitionError
from triokafka.spark.options import ReadOptions
from triokafka.spark.plan import LogBounds, OffsetRange, plan
from triokafka.spark.portal import portal
from triokafka.spark.schema import arrow_schema, columns
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

# Where Spark takes batches fastest: larger ones leave the cache, smaller ones pay for their frame (`spark/2.3`).
BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 1 << 20
_GRACE: Final = 5.0  # seconds that closing may take after a call's own deadline


@dataclass(frozen=True)
class RangePartition(InputPartition):  # type: ignore[misc] # pyspark has no types here
    """What one Spark task reads. Spark pickles one for each task, so it holds nothing else."""

    topic: str
    partition: int
    start: int
    end: int


class TopicReader(DataSourceReader):  # type: ignore[misc] # pyspark has no types here
    """Reads the ranges that ``options`` ask for. Every range is read to its end, or an error says why not."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options

    def partitions(self) -> list[RangePartition]:
        """Resolve offsets now, and give one input partition for each topic partition that has any.

        Waits at most ``default.api.timeout.ms``.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
            OffsetOutOfRangeError: offsets are asked for that were deleted, or that do not exist yet.
            ConfigurationError: the offsets given do not fit the topics' partitions.
            KafkaTimeoutError: no broker answered in time.
        """
        try:
            return [RangePartition(*found) for found in portal().call(self._plan)]
        except KafkaError as error:
            raise _without_frames(error) from error.__cause__

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one range.

        Raises:
            OffsetOutOfRangeError: some of them were deleted since they were planned.
            CorruptRecordError: names topic, partition and offset.
            KafkaTimeoutError: no progress within ``default.api.timeout.ms``.
        """
        # A plan without ranges comes back as one partition without a value.
        if isinstance(partition, RangePartition):
            try:
                yield from self._read(partition)
            except KafkaError as error:
                raise _without_frames(error) from error.__cause__

    def _read(self, wanted: RangePartition) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(self.options)

        def make() -> triokafka.RangeReader:
            return triokafka.RangeReader(
                {TopicPartition(wanted.topic, wanted.partition): (wanted.start, wanted.end)},
                columns=columns(self.options),
                batch_rows=BATCH_ROWS,
                **self._settings(),
            )

        for batch in portal().iterate(make):
            # Spark compares types to the letter, and wants whatever may be null in Spark to be so in Arrow.
            same = batch if batch.schema == schema else batch.cast(schema)
            yield from _cut(same)

    async def _plan(self) -> list[OffsetRange]:
        async with self._consumer() as consumer:
            deadline = trio.current_time() + consumer.options.default_api_timeout_ms / 1000

            def left_ms() -> float:
                return max(1.0, (deadline - trio.current_time()) * 1000)

            assigned: list[TopicPartition] = []
            for topic in self.options.topics:
                numbers = await consumer.partitions_for_topic(topic, timeout_ms=left_ms())
                if numbers is None:
                    raise UnknownTopicOrPartitionError(
                        f"there is no topic {topic!r} at {self.options.bootstrap_servers}: create it, or check the name"
                        " in option 'subscribe'"
                    )
                assigned += [TopicPartition(topic, number) for number in numbers]
            # Beginnings first: while data is written and deleted, an end read later is never before them.
            earliest = await consumer.beginning_offsets(assigned, timeout_ms=left_ms())
            latest = await consumer.end_offsets(assigned, timeout_ms=left_ms())
        return plan(self.options, {one: LogBounds(earliest[one], latest[one]) for one in assigned})

    @asynccontextmanager
    async def _consumer(self) -> AsyncIterator[triokafka.Consumer]:
        consumer = triokafka.Consumer(**self._settings(), enable_auto_commit=False, allow_auto_create_topics=False)
        seconds = consumer.options.default_api_timeout_ms / 1000
        # The calls have deadlines of their own, with better sentences. This one holds whatever else may hang.
        try:
            with trio.fail_after(seconds + _GRACE):
                async with consumer:
                    yield consumer
        except trio.TooSlowError:
            raise KafkaTimeoutError(
                f"the brokers at {self.options.bootstrap_servers} gave no offsets of {', '.join(self.options.topics)}"
                f" within {seconds:.0f} s"
            ) from None

    def _settings(self) -> dict[str, Any]:
        return {
            "client_id": "triokafka-spark",
            **self.options.client,
            "bootstrap_servers": self.options.bootstrap_servers,
        }


def _without_frames(error: KafkaError) -> KafkaError:
    """The error without the frames of the loop: it has a sentence, and Spark shows its users the whole traceback."""
    return error.with_traceback(None)


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in pieces of about `BATCH_BYTES`; large records would make it many times that."""
    pieces = min(batch.num_rows, max(1, round(batch.nbytes / BATCH_BYTES)))
    rows = -(-batch.num_rows // pieces)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
