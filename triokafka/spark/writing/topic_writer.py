"""The sink: every Spark task sends its rows (`task_writer`) and reports the written offsets.

The driver's `commit` and `abort` only log: without transactions, records of a failed attempt stay in the topic, and the
next attempt writes them again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyspark.sql.datasource as datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

from triokafka.errors import ConfigurationError
from triokafka.spark.writing.record_sink import Written
from triokafka.spark.writing.task_writer import TaskWriter, TaskWritten
from triokafka.spark.writing.write_options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

logger = logging.getLogger(__name__)

# Spark 4.0 does not have this class; it passes rows one by one.
ArrowStreamWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", None)


def _log(event: str, messages: Iterable[TaskWritten | None]) -> None:
    total = Written()
    for message in messages:
        if message is not None:
            for partition, found in message.written.ranges.items():
                total.add(partition, found)
    logger.info("%s: %d records in %d partitions", event, total.records, len(total.ranges))


class TopicWriter(DataSourceArrowWriter):  # type: ignore[misc] # pyspark has no types here
    """The batch writer, which only appends.

    Raises:
        ConfigurationError: the frame lacks a column, or the save mode is overwrite.
    """

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigurationError("Save mode Overwrite not allowed for Kafka: use .mode('append')")
        self.task = TaskWriter(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        """Write one task; see `TaskWriter.write`."""
        return self.task.write(iterator)

    def commit(self, messages: list[TaskWritten | None]) -> None:
        """Log the total; all records are acknowledged already."""
        _log("written", messages)

    def abort(self, messages: list[TaskWritten | None]) -> None:
        """Log the total after a task has failed permanently. Written records stay in the topics."""
        _log("the write failed after", messages)


class RowStreamWriter(DataSourceStreamWriter):  # type: ignore[misc] # pyspark has no types here
    """The streaming writer for Spark 4.0, which receives Python rows.

    In complete mode Spark asks to replace the contents; both streaming writers append all rows, like the connector.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self.task = TaskWriter(options, schema)

    def write(self, iterator: Iterator[Any]) -> TaskWritten:
        """Write one task; see `TaskWriter.write`."""
        return self.task.write_rows(iterator)

    def commit(self, messages: list[TaskWritten | None], batchId: int) -> None:
        """Log the total of a completed micro-batch."""
        _log(f"batch {batchId} written", messages)

    def abort(self, messages: list[TaskWritten | None], batchId: int) -> None:
        """Log the total of a failed micro-batch. Written records stay, and a restarted query writes them again."""
        _log(f"batch {batchId} failed after", messages)


def stream_writer(options: WriteOptions, schema: StructType) -> DataSourceStreamWriter:
    """Return the streaming writer, by column if this Spark supports it."""
    return RowStreamWriter(options, schema) if ArrowStreamWriter is None else StreamWriter(options, schema)


if ArrowStreamWriter is not None:

    class StreamWriter(ArrowStreamWriter):  # type: ignore[misc] # known at run time only
        """The streaming writer for Spark 4.1 and newer."""

        def __init__(self, options: WriteOptions, schema: StructType) -> None:
            self.task = TaskWriter(options, schema)

        write = TopicWriter.write
        commit = RowStreamWriter.commit
        abort = RowStreamWriter.abort
