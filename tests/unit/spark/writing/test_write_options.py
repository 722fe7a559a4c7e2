"""The options of a write, and the columns that it accepts (sink)."""

from __future__ import annotations

import inspect
import pickle
import traceback
from pathlib import Path

import pytest
from pyspark.sql import types

from pyspark_triokafka import DefaultSource
from tests.spark.frames import HEADERS, frame
from triokafka.errors import ConfigurationError
from triokafka.spark.writing.record_sink import Written, WrittenRange
from triokafka.spark.writing.task_writer import TaskWritten
from triokafka.spark.writing.topic_writer import ArrowStreamWriter, RowStreamWriter, TopicWriter, stream_writer
from triokafka.spark.writing.write_options import WriteOptions, check_columns
from triokafka.structs import TopicPartition

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def refused(**options: str) -> str:
    with pytest.raises(ConfigurationError) as error:
        WriteOptions.parse({**SERVERS, **options})
    return str(error.value)


def test_options_become_settings_of_the_producer() -> None:
    given = {
        **SERVERS,
        "TOPIC": " orders ",
        "kafka.compression.type": "lz4",
        "kafka.linger.ms": "50",
        "kafka.enable.idempotence": "true",
        "kafka.client.id": "0042",
    }
    found = WriteOptions.parse(given)
    assert found.topic == "orders"
    settings = found.producer_settings()
    assert settings["bootstrap_servers"] == "localhost:9092"
    assert settings["client_id"] == "0042"
    assert (settings["compression_type"], settings["linger_ms"], settings["enable_idempotence"]) == ("lz4", 50, True)


def test_producer_is_idempotent_with_acks_all_by_default() -> None:
    from triokafka.client.config import ProducerOptions

    options = ProducerOptions.parse(WriteOptions.parse(SERVERS).producer_settings())
    assert options.idempotent
    assert options.acks == -1


def test_settings_are_in_no_repr() -> None:
    """Spark can print the local variables of a failed task."""
    assert "localhost" in repr(WriteOptions.parse(SERVERS))
    assert "my-client" not in repr(WriteOptions.parse({**SERVERS, "kafka.client.id": "my-client"}))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kafka.key.serializer": "foo"}, "Kafka option 'key.serializer' is not supported"),
        ({"kafka.value.serializer": "foo"}, "Kafka option 'value.serializer' is not supported"),
        ({"kafka.interceptor.classes": "foo"}, "Kafka option 'interceptor.classes' is not supported"),
        ({"kafka.transactional.id": "foo"}, "Kafka option 'transactional.id' is not supported"),
        ({"kafka.partitioner.class": "com.example.Mine"}, "name a Python one as 'module:Name'"),
        ({"kafka.compression.typ": "lz4"}, "did you mean 'kafka.compression.type'?"),
        ({"kafka.security.protocol": "SASL_SSL"}, "needs kafka.sasl.mechanism"),
        ({"kafka.ssl.provider": "x"}, "Kafka option 'ssl.provider' is not supported"),
        ({"kafka.compression.gzip.level": "9"}, "here it is 'kafka.compression.level'"),
        ({"kafka.linger.ms": "soon"}, "kafka.linger.ms='soon'"),
        ({"topics": "orders"}, "Unknown option 'topics' of a write; did you mean 'topic'?"),
        ({"transactional": "batch"}, "it must be 'true' or 'false'"),
        ({"kafka.bootstrap.servers": " "}, "Option 'kafka.bootstrap.servers' must be specified"),
    ],
)
def test_unusable_options_are_refused_by_name(options: dict[str, str], sentence: str) -> None:
    assert sentence in refused(**options)


def test_options_of_spark_and_of_the_reader_are_left_alone() -> None:
    """One set of options often serves both sides, which the connector accepts."""
    reads = {"includeHeaders": "true", "subscribe": "a", "startingOffsets": "earliest", "failOnDataLoss": "false"}
    consumers = {"kafka.group.id": "g", "kafka.isolation.level": "read_committed", "kafka.max.poll.records": "5"}
    found = WriteOptions.parse({**SERVERS, "checkpointLocation": "/tmp/x", "path": "/tmp/y", **reads, **consumers})
    assert (found.client, found.warnings) == ({}, ())


def test_options_of_other_sinks_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    source = DefaultSource({**SERVERS, "topic": "t", "mergeSchema": "true"})
    assert source.writer(frame(value="string"), False).task.options.client == {}
    assert [record.message for record in caplog.records] == [
        "format 'triokafka': options that the sink does not know are ignored: 'mergeschema'",
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": "user hush"},
        {"kafka.ssl.key.password": "hush", "kafka.ssl.provider": "x"},
        {"kafka.client.id": "hush", "kafka.linger.ms": "soon"},
        {"kafka.client.id": "hush", "topicc": "a"},
        {"kafka.client.id": "hush", "kafka.key.serializer": "x"},
        {"kafka.client.id": "hush", "transactional": "batch"},
    ],
)
def test_no_local_variable_of_a_refusal_shows_a_password(wrong: dict[str, str]) -> None:
    """``spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled`` prints them all."""
    source = DefaultSource({**SERVERS, "topic": "orders", **wrong})
    with pytest.raises(ConfigurationError) as refusal:
        WriteOptions.parse(source._options())  # which `writer` calls, and cuts the traceback off
    without_test = refusal.value.with_traceback(refusal.tb.tb_next)
    shown = "".join(traceback.TracebackException.from_exception(without_test, capture_locals=True).format())
    assert "options = <" in shown, "local variables are shown"
    assert "hush" not in shown


def test_kafkas_partitioners_map_to_the_default() -> None:
    name = "org.apache.kafka.clients.producer.internals.DefaultPartitioner"
    assert "partitioner" not in WriteOptions.parse({**SERVERS, "kafka.partitioner.class": name}).client


@pytest.mark.parametrize(
    ("columns", "topic", "sentence"),
    [
        ({"key": "string", "value": "string"}, None, "topic option required when no 'topic' attribute is present"),
        ({"topic": "string", "key": "string"}, None, "Required attribute 'value' not found"),
        ({"topic": "int", "value": "string"}, None, "topic attribute unsupported type int. topic must be a(n) string"),
        ({"topic": "string", "value": "int"}, None, "value must be a(n) string or binary"),
        ({"topic": "string", "value": "string", "key": "int"}, None, "key must be a(n) string or binary"),
        ({"value": "string", "partition": "string"}, "t", "partition must be a(n) int"),
        ({"value": "string", "partition": "bigint"}, "t", "partition attribute unsupported type bigint"),
        ({"value": "string", "headers": "map<string,binary>"}, "t", f"headers must be a(n) {HEADERS}"),
    ],
)
def test_columns_that_cannot_be_written_are_refused_in_the_connectors_words(
    columns: dict[str, str], topic: str | None, sentence: str
) -> None:
    """KafkaSinkSuite: write data with bad schema; with valid schema but wrong types"""
    with pytest.raises(ConfigurationError) as error:
        check_columns(frame(**columns), topic)
    assert sentence in str(error.value)


def test_a_column_that_is_there_twice_is_refused() -> None:
    """A join may leave duplicate columns, and the intended one is unknown. Other duplicates do not matter."""
    fields = [*frame(value="string", key="string", extra="int"), *frame(extra="int")]
    check_columns(types.StructType(fields), "t")
    with pytest.raises(ConfigurationError, match="the frame has several columns named 'value', 'key': select one"):
        check_columns(types.StructType([*fields, *fields]), "t")


def test_strings_and_bytes_are_written_and_other_columns_ignored() -> None:
    check_columns(
        frame(value="binary", key="string", headers=HEADERS, partition="int", topic="int", extra="double"), "t"
    )
    check_columns(frame(value="string", key="binary", topic="string"), None)


def test_replacing_a_topic_is_refused() -> None:
    """KafkaSinkSuite: batch - unsupported save modes"""
    with pytest.raises(ConfigurationError, match="Save mode Overwrite not allowed for Kafka"):
        TopicWriter(WriteOptions.parse({**SERVERS, "topic": "t"}), frame(value="string"), True)


def test_task_reports_its_written_ranges_to_the_driver() -> None:
    """A task's result has the offsets of all its records, and the driver gets it with the batch's number."""
    writer = stream_writer(WriteOptions.parse({**SERVERS, "topic": "t"}), frame(value="string"))
    for end in (writer.commit, writer.abort):
        assert list(inspect.signature(end).parameters) == ["messages", "batchId"]
    result = TaskWritten(Written({TopicPartition("t", 0): WrittenRange(5, 10, 14)}))
    assert pickle.loads(pickle.dumps(result)) == result
    page = (Path(__file__).parents[4] / "docs" / "spark.md").read_text(encoding="utf-8")
    assert "| exactly-once writes | with the option `transactional`" in page


def test_streams_are_written_by_column_where_spark_can() -> None:
    writer = stream_writer(WriteOptions.parse({**SERVERS, "topic": "t"}), frame(value="string"))
    assert isinstance(writer, RowStreamWriter) == (ArrowStreamWriter is None)
    assert pickle.loads(pickle.dumps(writer)).task.options == writer.task.options
