"""Lets Spark find ``format("triokafka")``: Spark imports every top-level module named ``pyspark_*``.

It imports nothing of triokafka until the source is used, because a failing import here would break every Python source
of the session.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from triokafka.spark.planning.decoding import DecodingOptions
    from triokafka.spark.planning.read_options import ReadOptions
    from triokafka.spark.writing.write_options import WriteOptions

P = ParamSpec("P")
T = TypeVar("T")


def _told_shortly(method: Callable[P, T]) -> Callable[P, T]:
    """What options are refused with has a sentence, and Spark shows its users the whole traceback: it comes without."""

    @functools.wraps(method)
    def call(*arguments: P.args, **keywords: P.kwargs) -> T:
        try:
            return method(*arguments, **keywords)
        except Exception as error:
            from triokafka.errors import KafkaError
            from triokafka.spark.planning.brokers import without_frames

            if not isinstance(error, KafkaError):
                raise
            refused = without_frames(error)
        raise refused

    return call


class DefaultSource(DataSource):  # type: ignore[misc] # pyspark has no types here
    """Kafka topics as DataFrames, with the options and columns of Spark's own Kafka connector."""

    # What `schema` learned from a schema registry. Spark pickles the source when it has its schema: the readers ask for
    # nothing again, and read with the schema that the columns were made from.
    _learned: DecodingOptions | None = None

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "triokafka"

    @_told_shortly
    def schema(self) -> StructType:
        """The connector's columns, or those of option ``columns``; ``headers`` only with ``includeHeaders``."""
        from triokafka.spark.planning.read_options import ReadOptions
        from triokafka.spark.schema import spark_schema

        options = ReadOptions.parse_either(self._options())
        found = spark_schema(options)
        if options.decoding.sides:
            self._learned = options.decoding
        return found

    @_told_shortly
    def reader(self, schema: StructType) -> DataSourceReader:
        """The batch reader. A schema of the user's is refused."""
        from triokafka.spark.reading.topic_reader import TopicReader

        return TopicReader(self._read_options(schema, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of a streaming query. A schema of the user's is refused, when the reader is asked for offsets."""
        from triokafka.errors import KafkaError
        from triokafka.spark.reading.topic_stream_reader import TopicStreamReader

        try:
            options = self._read_options(schema, streaming=True)
        except KafkaError as error:
            from triokafka.spark.reading.refused_stream_reader import RefusedStreamReader

            return RefusedStreamReader(error)
        return TopicStreamReader(options)

    @_told_shortly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The batch writer, which only appends."""
        from triokafka.spark.writing.topic_writer import TopicWriter

        return TopicWriter(self._write_options(), schema, overwrite)

    @_told_shortly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The writer of a streaming query. In complete mode every batch's result is written whole."""
        from triokafka.spark.writing.topic_writer import stream_writer

        return stream_writer(self._write_options(), schema)

    def _write_options(self) -> WriteOptions:
        from triokafka.spark.writing.write_options import WriteOptions

        options = WriteOptions.parse(self._options())
        options.log_warnings()
        return options

    def _read_options(self, schema: StructType, *, streaming: bool) -> ReadOptions:
        from triokafka.spark.planning.read_options import ReadOptions
        from triokafka.spark.schema import check_schema

        options = ReadOptions.parse(self._options(), streaming=streaming)
        if self._learned is not None:
            options.decoding.learn(self._learned)
        check_schema(schema, options)
        options.log_warnings()
        return options

    def _options(self) -> dict[str, Any]:
        from triokafka.spark.planning.client_settings import HiddenValues

        return HiddenValues(self.options)
