"""The top-level module that Spark imports."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.types import StructType

import pyspark_triokafka
from triokafka.errors import ConfigurationError
from triokafka.spark.planning.read_options import ReadOptions
from triokafka.spark.reading.topic_reader import TopicReader
from triokafka.spark.schema import spark_schema
from triokafka.spark.writing.topic_writer import TopicWriter

OPTIONS = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}


def test_the_module_imports_nothing_that_could_fail() -> None:
    """A failing import there would break every Python source of the session."""
    code = (
        "import sys, pyspark_triokafka;"
        "print([name for name in sys.modules if name.split('.')[0] in ('triokafka', 'trio', 'pyarrow')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_source_has_the_name_that_spark_looks_for() -> None:
    """Promised: a name of its own"""
    assert pyspark_triokafka.DefaultSource.name() == "triokafka"


def test_the_source_gives_schema_and_reader() -> None:
    source = pyspark_triokafka.DefaultSource(OPTIONS)
    schema = source.schema()
    assert schema == spark_schema(ReadOptions.parse(OPTIONS))
    reader = source.reader(schema=schema)  # as Spark calls it
    assert isinstance(reader, TopicReader)
    assert str(reader.options.topics) == "Subscribe[orders]"


@pytest.mark.parametrize(
    ("options", "ask"),
    [
        ({"startingOffset": "earliest"}, lambda source: source.schema()),
        ({"startingOffsets": "latest"}, lambda source: source.reader(spark_schema(ReadOptions.parse(OPTIONS)))),
        ({"transactional": "batch"}, lambda source: source.writer(StructType(), False)),
        ({"transactional": "batch"}, lambda source: source.streamWriter(StructType(), False)),
    ],
)
def test_a_refusal_is_a_message_with_a_short_traceback(options: dict[str, str], ask: Callable[[Any], object]) -> None:
    """Spark prints the whole traceback to its users."""
    with pytest.raises(ConfigurationError) as refused:
        ask(pyspark_triokafka.DefaultSource({**OPTIONS, **options}))
    assert [entry.name for entry in refused.traceback][-1:] == ["call"]
    assert len(refused.traceback) <= 3, "the test's two, and the one that raises"
    assert refused.value.__context__ is None or refused.value.__suppress_context__


def test_the_source_gives_writers_as_spark_requests_them() -> None:
    source = pyspark_triokafka.DefaultSource({**OPTIONS, "topic": "t"})
    schema = StructType().add("value", "string")
    assert isinstance(source.writer(schema=schema, overwrite=False), TopicWriter)
    assert source.streamWriter(schema=schema, overwrite=True) is not None


def test_invalid_streaming_options_are_reported_at_the_first_offsets() -> None:
    """If the construction of the reader fails, Spark ends with an ``UnboundLocalError`` after the message."""
    source = pyspark_triokafka.DefaultSource({**OPTIONS, "endingOffsets": "latest", "startingOffsets": "earliest"})
    reader = source.streamReader(source.schema())
    for ask in (reader.initialOffset, reader.latestOffset, lambda: reader.partitions({}, {})):
        with pytest.raises(ConfigurationError, match="ending offset not valid in streaming queries"):
            ask()
