"""The rows of one Spark task, sent through a producer of its own.

Rows come from the JVM as Arrow and are sent by column. A task returns when all its records are acknowledged; with the
option ``transactional`` it commits a transaction (`exactly_once`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import trio
from pyspark.sql.datasource import WriterCommitMessage

import triokafka
from triokafka.errors import KafkaError
from triokafka.loop_thread import loop_thread
from triokafka.spark.planning.brokers import without_frames
from triokafka.spark.writing.exactly_once import place_of_task, write_once
from triokafka.spark.writing.record_sink import RecordSink, Written
from triokafka.spark.writing.write_options import COLUMNS, WriteOptions, check_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_ROWS: Final = 10_000


@dataclass(frozen=True)
class TaskWritten(WriterCommitMessage):  # type: ignore[misc] # pyspark has no types here
    """One task's report to the driver: records and offsets by partition."""

    written: Written


class TaskWriter:
    """Writes the rows of tasks with one producer each. Spark pickles it for every task, as a part of its writer."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema, options.topic)
        self.options = options
        self.schema = schema
        # The same in all attempts of all tasks, which get copies of this object.
        self.job = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        """Send the rows of one task, and wait until all are acknowledged.

        Raises:
            ConfigurationError: a topic is null.
            KafkaError: a record cannot be sent, or was not delivered within ``delivery.timeout.ms``; the message names
                topic, partition and reason.
        """
        batches = (batch.select(self._columns) for batch in iterator)
        work = self._send_all
        if self.options.transactional:
            work = partial(
                write_once,
                place=place_of_task(self.job),
                topic=self.options.topic,
                settings=self.options.producer_settings(),
            )
        try:
            return TaskWritten(loop_thread().feed(batches, work))
        except KafkaError as error:
            raise without_frames(error) from None

    def write_rows(self, iterator: Iterator[Any]) -> TaskWritten:
        """Send Python rows as `write` sends batches."""
        return self.write(_as_batches(iterator, self.schema, self._columns))

    @property
    def _columns(self) -> list[str]:
        """The columns to write."""
        names = [name for name in COLUMNS if name in self.schema.names]
        return [name for name in names if name != "topic" or self.options.topic is None]

    async def _send_all(self, batches: trio.MemoryReceiveChannel[pa.RecordBatch]) -> Written:
        async with triokafka.Producer(**self.options.producer_settings()) as producer:
            sink = RecordSink(producer, self.options.topic)
            async for batch in batches:
                await sink.send(batch)
            return await sink.finish()


def _as_batches(rows: Iterator[Any], schema: StructType, wanted: list[str]) -> Iterator[pa.RecordBatch]:
    """Convert rows to batches of the wanted columns; other columns may have types that Arrow lacks."""
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from triokafka.spark.columns import to_arrow

    arrow = to_arrow(StructType([schema[name] for name in wanted]))
    places = [schema.names.index(name) for name in wanted]
    while piece := list(islice(rows, _ROWS)):
        columns = [
            pa.array([_plain(row[place]) for row in piece], each.type)
            for place, each in zip(places, arrow, strict=True)
        ]
        yield pa.record_batch(columns, schema=arrow)


def _plain(value: Any) -> Any:
    """Convert Spark's row classes in a cell: headers are lists of them."""
    if isinstance(value, list):
        return [each.asDict() if hasattr(each, "asDict") else each for each in value]
    return bytes(value) if isinstance(value, bytearray) else value
