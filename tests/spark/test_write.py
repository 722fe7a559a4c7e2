"""Writing as Spark's Python workers do, with a real broker and without a JVM."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row, types

import triokafka
from tests.spark.frames import HEADERS, frame
from tests.spark.topics import make_topic
from triokafka.errors import ConfigurationError, KafkaError
from triokafka.spark.writing.record_sink import WrittenRange
from triokafka.spark.writing.task_writer import TaskWritten
from triokafka.spark.writing.topic_writer import RowStreamWriter, TopicWriter, stream_writer
from triokafka.spark.writing.write_options import WriteOptions
from triokafka.structs import TopicPartition

ALL = frame(topic="string", key="binary", value="binary", partition="int", headers=HEADERS)
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ARROW = pa.schema(
    [("topic", pa.string()), ("key", pa.binary()), ("value", pa.binary()), ("partition", pa.int32()),
     ("headers", _HEADERS)]
)  # fmt: skip


def options(bootstrap: str, topic: str | None = None, **more: str) -> WriteOptions:
    given = {"kafka.bootstrap.servers": bootstrap, "kafka.max.block.ms": "5000", **more}
    return WriteOptions.parse(given if topic is None else {**given, "topic": topic})


def rows(*found: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(found), schema=ARROW)


def write(found: WriteOptions, batches: Iterable[pa.RecordBatch], schema: types.StructType = ALL) -> TaskWritten:
    writer = TopicWriter(found, schema, False)
    return pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(writer)).write(iter(batches))))  # type: ignore[no-any-return]


def read(bootstrap: str, topic: str, *columns: str) -> list[dict[str, Any]]:
    reader = triokafka.read_topic(topic, bootstrap_servers=bootstrap, columns=columns or ["key", "value"])
    return reader.read_all().to_pylist()  # type: ignore[no-any-return]


def test_every_column_arrives_as_it_was_given(bootstrap: str) -> None:
    """KafkaSinkSuite: batch - write to kafka: headers repeat, stay in order, and may be null."""
    topic = make_topic(bootstrap)
    written = [
        {"key": b"k", "value": b"1", "headers": [{"key": "a", "value": b"b"}]},
        {"key": None, "value": b"2", "headers": [{"key": "g", "value": b"h"}, {"key": "g", "value": b"i"}]},
        {"key": b"", "value": b"", "headers": None},
        {"key": b"t", "value": None, "headers": [{"key": "n", "value": None}]},
    ]
    found = write(options(bootstrap, topic), [rows(*written[:2]), rows(*written[2:])])  # type: ignore[arg-type]
    assert read(bootstrap, topic, "key", "value", "headers") == written
    assert found.written.ranges == {TopicPartition(topic, 0): WrittenRange(4, 0, 3)}


def test_records_go_to_the_topics_of_their_column_in_order(bootstrap: str) -> None:
    """KafkaSinkSuite: streaming - write to kafka with topic field"""
    topics = [make_topic(bootstrap) for _ in range(3)]
    given = [{"topic": topics[n * n % 3], "value": b"%d" % n} for n in range(300)]
    found = write(options(bootstrap), [rows(*given[:100]), rows(*given[100:])])
    for topic in topics:
        expected = [row["value"] for row in given if row["topic"] == topic]
        assert [row["value"] for row in read(bootstrap, topic)] == expected
    assert found.written.records == 300


def test_the_option_overrides_the_column(bootstrap: str) -> None:
    """KafkaSinkSuite: streaming - topic field and topic option"""
    topic = make_topic(bootstrap)
    write(options(bootstrap, topic), [rows({"topic": "foo", "value": b"1"}, {"topic": None, "value": b"2"})])
    assert [row["value"] for row in read(bootstrap, topic)] == [b"1", b"2"]


def test_a_null_topic_fails_the_task(bootstrap: str) -> None:
    """KafkaSinkSuite: batch - null topic field value, and no topic option"""
    with pytest.raises(ConfigurationError, match="null topic present in the data"):
        write(options(bootstrap), [rows({"topic": None, "value": b"1"})])


def test_strings_are_written_as_utf_8(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    batch = pa.record_batch({"value": ["é", None], "key": ["ключ", "k"]})
    write(options(bootstrap, topic), [batch], frame(value="string", key="string"))
    assert read(bootstrap, topic) == [
        {"key": "ключ".encode(), "value": "é".encode()},
        {"key": b"k", "value": None},
    ]


class Zero(triokafka.Partitioner):
    """Chooses partition 0 for all records."""

    def partition(self, topic: str, key: Any, value: Any, partitions: Any, available: Any) -> int:
        return 0


def partitions(bootstrap: str, topic: str) -> dict[bytes, int]:
    return {row["key"]: row["partition"] for row in read(bootstrap, topic, "key", "partition")}


def test_a_partition_column_overrides_a_partitioner_and_that_the_keys_hash(bootstrap: str) -> None:
    """KafkaSinkSuite: batch - partition column and partitioner priorities"""
    given = [{"key": b"%d" % n, "value": b"v"} for n in range(5)]
    own = {"kafka.partitioner.class": f"{__name__}:Zero"}
    topics = [make_topic(bootstrap, partitions=4) for _ in range(4)]
    write(options(bootstrap, topics[0]), [rows(*given)])
    by_key = partitions(bootstrap, topics[0])
    assert len(set(by_key.values())) > 1
    write(options(bootstrap, topics[1], **own), [rows(*given)])
    assert set(partitions(bootstrap, topics[1]).values()) == {0}
    write(options(bootstrap, topics[2], **own), [rows(*({**row, "partition": 2} for row in given))])
    assert set(partitions(bootstrap, topics[2]).values()) == {2}
    write(options(bootstrap, topics[3]), [rows(*({**row, "partition": None} for row in given))])
    assert partitions(bootstrap, topics[3]) == by_key


def test_a_partitioner_receives_strings_as_the_sent_bytes(bootstrap: str) -> None:
    """Its records are sent one by one, and a ``str`` without a serializer is refused."""
    topic = make_topic(bootstrap, partitions=4)
    batch = pa.record_batch({"value": ["é", None], "key": ["ключ", "k"]})
    own = {"kafka.partitioner.class": f"{__name__}:Zero"}
    write(options(bootstrap, topic, **own), [batch], frame(value="string", key="string"))
    large = pa.schema([("value", pa.large_string()), ("key", pa.large_string())])
    write(options(bootstrap, topic, **own), [batch.cast(large)], frame(value="string", key="string"))
    expected = [{"key": "ключ".encode(), "value": "é".encode()}, {"key": b"k", "value": None}]
    assert read(bootstrap, topic) == 2 * expected


def test_a_partition_for_some_records_leaves_the_others_to_their_keys(bootstrap: str) -> None:
    topic = make_topic(bootstrap, partitions=4)
    keyed = make_topic(bootstrap, partitions=4)
    given = [{"key": b"%d" % n, "value": b"v", "partition": 3 if n % 2 else None} for n in range(40)]
    write(options(bootstrap, topic), [rows(*given)])
    write(options(bootstrap, keyed), [rows(*({**row, "partition": None} for row in given))])
    expected = {key: 3 if int(key) % 2 else partition for key, partition in partitions(bootstrap, keyed).items()}
    assert partitions(bootstrap, topic) == expected


def test_a_missing_topic_fails_the_task_and_is_named(bootstrap: str) -> None:
    """KafkaSinkSuite: streaming - write to non-existing topic"""
    own = {"kafka.max.block.ms": "500", "kafka.allow.auto.create.topics": "false"}
    with pytest.raises(KafkaError, match="writing to topic 'nowhere' failed") as failed:
        write(options(bootstrap, "nowhere", **own), [rows({"value": b"1"})])
    assert failed.value.__cause__ is None


@pytest.mark.parametrize("partition", [7, -3])
def test_a_missing_partition_fails_the_task(bootstrap: str, partition: int) -> None:
    topic = make_topic(bootstrap, partitions=2)
    with pytest.raises(KafkaError, match=f"writing to topic '{topic}' failed.*(partition|{partition})"):
        write(options(bootstrap, topic), [rows({"value": b"1", "partition": partition})])


def test_a_refused_record_fails_the_task_with_topic_and_partition(bootstrap: str) -> None:
    topic = make_topic(bootstrap, partitions=3)
    own = {"kafka.max.request.size": str(8 << 20)}
    with pytest.raises(KafkaError) as failed:
        write(options(bootstrap, topic, **own), [rows({"value": bytes(5 << 20), "partition": 2})])
    assert topic in str(failed.value)
    assert f"{topic}-2" in str(failed.value)
    assert "max.message.bytes" in str(failed.value) or "too large" in str(failed.value).lower()


def test_refusal_names_the_remedy(bootstrap: str) -> None:
    with pytest.raises(KafkaError) as failed:
        write(options(bootstrap, "two words"), [rows({"value": b"1"})])
    assert str(failed.value) == (
        "writing to topic 'two words' failed: InvalidTopicError: topic 'two words' cannot exist."
        " Use 1 to 249 of the characters a-z A-Z 0-9 . _ -"
    )


@pytest.mark.parametrize(
    ("headers", "sentence"),
    [
        ([None], "a record's headers contain a null: remove it from the array"),
        ([{"key": "a", "value": b"b"}, {"key": None, "value": b"b"}], "a header has no name: its key is null"),
    ],
)
def test_invalid_headers_are_reported(bootstrap: str, headers: Any, sentence: str) -> None:
    topic = make_topic(bootstrap)
    with pytest.raises(KafkaError) as failed:
        write(options(bootstrap, topic), [rows({"value": b"0"}, {"value": b"1", "headers": headers})])
    assert str(failed.value) == f"writing to topic '{topic}' failed: {sentence}"


def test_empty_headers_are_none(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    empty: list[Any] = []
    write(
        options(bootstrap, topic), [rows({"value": b"0", "headers": empty}, {"value": b"1", "headers": [{"key": ""}]})]
    )
    found = read(bootstrap, topic, "headers")
    assert [row["headers"] for row in found] == [None, [{"key": "", "value": None}]]


def test_too_large_record_is_reported_with_sparks_option(bootstrap: str) -> None:
    """The error does not name the client's own ``max_request_size``, which is not an option here."""
    topic = make_topic(bootstrap)
    with pytest.raises(KafkaError, match="MessageSizeTooLargeError") as failed:
        write(options(bootstrap, topic, **{"kafka.max.request.size": "2000"}), [rows({"value": bytes(5_000)})])
    assert "is larger than kafka.max.request.size=2000" in str(failed.value)
    assert "raise max.message.bytes of the topic and kafka.max.request.size of the producer" in str(failed.value)
    assert "max_request_size" not in "".join(traceback.format_exception(failed.value))


def test_large_data_are_written_through_a_small_buffer(bootstrap: str) -> None:
    """KafkaSinkSuite: generic - write big data with small producer buffer"""
    topic = make_topic(bootstrap)
    own = {"kafka.buffer.memory": "16384", "kafka.batch.size": "16384"}
    batch = pa.record_batch({"value": [bytes(15_000)] * 100})
    found = write(options(bootstrap, topic, **own), [batch] * 10, frame(value="binary"))
    assert found.written.ranges == {TopicPartition(topic, 0): WrittenRange(1_000, 0, 999)}


def test_written_ranges_are_reported_by_partition(bootstrap: str) -> None:
    topic = make_topic(bootstrap, partitions=3)
    given = [rows(*({"value": b"v", "partition": n % 3} for n in range(start, start + 100))) for start in (0, 100)]
    found = write(options(bootstrap, topic), given).written
    assert found.ranges == {
        TopicPartition(topic, 0): WrittenRange(67, 0, 66),
        TopicPartition(topic, 1): WrittenRange(67, 0, 66),
        TopicPartition(topic, 2): WrittenRange(66, 0, 65),
    }
    assert found.records == 200


def test_a_task_without_rows_writes_nothing(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    assert write(options(bootstrap, topic), []).written.ranges == {}
    assert write(options(bootstrap, topic), [rows()]).written.ranges == {}


def test_rows_that_are_unavailable_end_the_write_with_their_error(bootstrap: str) -> None:
    topic = make_topic(bootstrap)

    def broken() -> Iterator[pa.RecordBatch]:
        yield rows({"value": b"1"})
        raise OSError("the JVM is gone")

    with pytest.raises(OSError, match="the JVM is gone"):
        write(options(bootstrap, topic), broken())


def test_spark_4_0_writes_streams_row_by_row(bootstrap: str) -> None:
    """Spark 4.0 has no Arrow writer for streams."""
    topic = make_topic(bootstrap)
    writer = RowStreamWriter(options(bootstrap, topic), ALL)
    header = Row(key="h", value=bytearray(b"1"))
    made = Row("topic", "key", "value", "partition", "headers")
    found = writer.write(iter([made(None, bytearray(b"k"), b"v", 0, [header]), made("t", None, b"w", None, None)]))
    assert found.written.records == 2
    assert read(bootstrap, topic, "key", "value", "headers") == [
        {"key": b"k", "value": b"v", "headers": [{"key": "h", "value": b"1"}]},
        {"key": None, "value": b"w", "headers": None},
    ]


def test_row_by_row_writes_ignore_other_columns(bootstrap: str) -> None:
    """They may have types that Arrow lacks, or for which it has other objects, such as nested rows."""
    topic = make_topic(bootstrap)
    schema = types.StructType([
        types.StructField("months", types.YearMonthIntervalType()),
        types.StructField("value", types.StringType()),
        types.StructField("topic", types.StringType()),
        types.StructField("place", types.StructType([types.StructField("x", types.IntegerType())])),
    ])  # fmt: skip
    made = Row("months", "value", "topic", "place")
    rows_given = [made(3, "a", "t", Row(x=1)), made(None, "b", None, None)]
    assert RowStreamWriter(options(bootstrap, topic), schema).write(iter(rows_given)).written.records == 2
    assert [row["value"] for row in read(bootstrap, topic)] == [b"a", b"b"]


def test_a_stream_in_complete_mode_is_written_again(bootstrap: str) -> None:
    import pyspark_triokafka

    given = {"kafka.bootstrap.servers": bootstrap, "topic": make_topic(bootstrap)}
    source = pyspark_triokafka.DefaultSource(given)
    writer = source.streamWriter(frame(value="string"), True)
    assert type(writer) is type(stream_writer(options(bootstrap, "t"), frame(value="string")))
    writer.commit([writer.write(iter([pa.record_batch({"value": ["x"]})])), None], 0)
    writer.abort([None], 1)
    assert [row["value"] for row in read(bootstrap, given["topic"])] == [b"x"]
