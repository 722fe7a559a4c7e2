"""Lets Spark find ``format("triokafka")``: Spark imports every top-level module named ``pyspark_*``.

It imports triokafka only when the source is used: a failing import here would break every Python source of the session.
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


def _without_traceback(method: Callable[P, T]) -> Callable[P, T]:
    """Raise errors of the options without their traceback, which Spark would show above the message."""

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

    # The schemas that `schema` fetched from a schema registry. Spark pickles the source after that, so readers use the
    # same schemas and do not ask the registry again.
    _learned: DecodingOptions | None = None

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "triokafka"

    @_without_traceback
    def schema(self) -> StructType:
        """Return the connector's columns, or those of option ``columns``; ``headers`` only with ``includeHeaders``."""
        from triokafka.spark.planning.read_options import ReadOptions
        from triokafka.spark.schema import spark_schema

        options = ReadOptions.parse_either(self._options())
        found = spark_schema(options)
        if options.decoding.sides:
            self._learned = options.decoding
        return found

    @_without_traceback
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the batch reader. Raises `ConfigurationError` if the user passes another schema."""
        from triokafka.spark.reading.topic_reader import TopicReader

        return TopicReader(self._read_options(schema, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming query. With another schema its first call raises `ConfigurationError`."""
        from triokafka.errors import KafkaError
        from triokafka.spark.reading.topic_stream_reader import TopicStreamReader

        try:
            options = self._read_options(schema, streaming=True)
        except KafkaError as error:
            from triokafka.spark.reading.refused_stream_reader import RefusedStreamReader

            return RefusedStreamReader(error)
        return TopicStreamReader(options)

    @_without_traceback
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the batch writer, which only appends."""
        from triokafka.spark.writing.topic_writer import TopicWriter

        return TopicWriter(self._write_options(), schema, overwrite)

    @_without_traceback
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a streaming query. In complete mode it appends the whole result of every batch."""
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
