"""The sink: every Spark task sends its rows through a producer of its own and says what it wrote where.

Rows come from the JVM as Arrow, and go to record batches by column. A task returns when all its records are
acknowledged. The driver's `commit` and `abort` are where the exactly-once mode will end transactions; without one there
is nothing to do there: what a failed attempt of a task wrote stays, and the next attempt writes it again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyspark.sql.datasource as datasource
import trio
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

import triokafka
from triokafka.errors import ConfigurationError, KafkaError
from triokafka.loop_thread import loop_thread
from triokafka.spark.brokers import without_frames
from triokafka.spark.sink import RecordSink, Written
from triokafka.spark.write_options import COLUMNS, WriteOptions, check_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

logger = logging.getLogger(__name__)

# Spark 4.0 has no such class: rows then come one by one.
ArrowStreamWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", None)
_ROWS: Final = 10_000


@dataclass(frozen=True)
class TaskWritten(WriterCommitMessage):  # type: ignore[misc] # pyspark has no types here
    """What one task tells the driver: records and offsets by partition."""

    written: Written


class _Writing:
    """What batch and streaming writers share. Spark pickles the writer for every task."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema, options.topic)
        self.options = options
        self.schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        """Send the rows of one task, and wait until all are acknowledged.

        Raises:
            ConfigurationError: a topic is null.
            KafkaError: a record cannot be sent, or was not delivered within ``delivery.timeout.ms``; names topic,
                partition and reason.
        """
        batches = (batch.select(self._wanted) for batch in iterator)
        try:
            return TaskWritten(loop_thread().feed(batches, self._send_all))
        except KafkaError as error:
            raise without_frames(error) from None

    @property
    def _wanted(self) -> list[str]:
        """The columns that are written."""
        names = [name for name in COLUMNS if name in self.schema.names]
        return [name for name in names if name != "topic" or self.options.topic is None]

    async def _send_all(self, batches: trio.MemoryReceiveChannel[pa.RecordBatch]) -> Written:
        async with triokafka.Producer(**self.options.producer_settings()) as producer:
            sink = RecordSink(producer, self.options.topic)
            async for batch in batches:
                await sink.send(batch)
            return await sink.finish()

    def _log(self, what: str, messages: Iterable[TaskWritten | None]) -> None:
        total = Written()
        for message in messages:
            if message is not None:
                for partition, found in message.written.ranges.items():
                    total.add(partition, found)
        logger.info("%s: %d records in %d partitions", what, total.records, len(total.ranges))


class TopicWriter(_Writing, DataSourceArrowWriter):  # type: ignore[misc] # pyspark has no types here
    """The batch writer. It only appends.

    Raises:
        ConfigurationError: the frame has not the columns, or is to replace what is in the topic.
    """

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigurationError(
                "Save mode Overwrite not allowed for Kafka: a topic is only added to. Use .mode('append')"
            )
        super().__init__(options, schema)

    def commit(self, messages: list[TaskWritten | None]) -> None:
        """All tasks have written; their records are acknowledged already."""
        self._log("written", messages)

    def abort(self, messages: list[TaskWritten | None]) -> None:
        """A task failed for good. What was written stays in the topics."""
        self._log("the write failed after", messages)


class _StreamWriting(_Writing):
    """A stream in complete mode asks to replace what is there, and gets all of it written again, as the connector
    does."""

    def commit(self, messages: list[TaskWritten | None], batchId: int) -> None:
        """All tasks of a micro-batch have written."""
        self._log(f"batch {batchId} written", messages)

    def abort(self, messages: list[TaskWritten | None], batchId: int) -> None:
        """A task of a micro-batch failed for good. What was written stays, and a restarted query writes it again."""
        self._log(f"batch {batchId} failed after", messages)


class RowStreamWriter(_StreamWriting, DataSourceStreamWriter):  # type: ignore[misc] # pyspark has no types here
    """The streaming writer for Spark 4.0, which gets Python rows."""

    def write(self, iterator: Iterator[Any]) -> TaskWritten:
        """As `TopicWriter.write`, from rows."""
        return super().write(_as_batches(iterator, self.schema, self._wanted))


def stream_writer(options: WriteOptions, schema: StructType) -> DataSourceStreamWriter:
    """The streaming writer: by column where this Spark has an interface for that."""
    return RowStreamWriter(options, schema) if ArrowStreamWriter is None else StreamWriter(options, schema)


def _as_batches(rows: Iterator[Any], schema: StructType, wanted: list[str]) -> Iterator[pa.RecordBatch]:
    """Rows by column; the others may be of types that Arrow has not."""
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from triokafka.spark.schema import to_arrow

    arrow = to_arrow(StructType([schema[name] for name in wanted]))
    places = [schema.names.index(name) for name in wanted]
    while piece := list(islice(rows, _ROWS)):
        columns = [
            pa.array([_plain(row[place]) for row in piece], each.type)
            for place, each in zip(places, arrow, strict=True)
        ]
        yield pa.record_batch(columns, schema=arrow)


def _plain(value: Any) -> Any:
    """A cell without Spark's row classes: headers come as lists of them."""
    if isinstance(value, list):
        return [each.asDict() if hasattr(each, "asDict") else each for each in value]
    return bytes(value) if isinstance(value, bytearray) else value


if ArrowStreamWriter is not None:

    class StreamWriter(_StreamWriting, ArrowStreamWriter):  # type: ignore[misc] # known at run time only
        """The streaming writer of Spark 4.1 and newer."""
