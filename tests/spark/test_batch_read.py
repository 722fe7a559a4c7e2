"""``spark.read.format("triokafka")`` in a real Spark session. All in one file: one session serves them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.spark.topics import Record, make_topic, options

CONNECTOR = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
)


def read(spark: Any, bootstrap: str, topic: str, **more: str) -> Any:
    return spark.read.format("triokafka").options(**options(bootstrap, topic, **more)).load()


def failure(spark: Any, given: dict[str, str]) -> str:
    with pytest.raises(Exception) as failed:
        spark.read.format("triokafka").options(**given).load().count()
    return str(failed.value)


def test_columns_and_types_equal_the_connectors(spark: Any, bootstrap: str) -> None:
    """Promised: install"""
    plain = read(spark, bootstrap, "any").schema
    assert plain.simpleString() == CONNECTOR
    assert all(field.nullable for field in plain)
    with_headers = read(spark, bootstrap, "any", includeHeaders="true").schema
    assert with_headers.simpleString() == CONNECTOR.replace(">", ",headers:array<struct<key:string,value:binary>>>")


def test_every_value_arrives_as_it_was_written(spark: Any, bootstrap: str) -> None:
    """Missing headers are NULL, header keys may repeat and stay in order. (Promised: headers)"""
    written = [
        Record(b"value", b"key", timestamp_ms=1_357_020_900_123),
        Record(None, b"tombstone"),
        Record(b"", b""),
        Record(b"\x00\xff\xfe", None, timestamp_ms=0),
        Record(b"h", b"h", headers=(("a", b"1"), ("a", b""), ("ü", None))),
    ]
    topic = make_topic(bootstrap, written)
    rows = read(spark, bootstrap, topic, includeHeaders="true").orderBy("offset").collect()
    assert [row.asDict(recursive=True) for row in rows] == [
        {
            "key": record.key,
            "value": record.value,
            "topic": topic,
            "partition": 0,
            "offset": offset,
            # pyspark returns instants as naive local times.
            "timestamp": datetime.fromtimestamp(record.timestamp_ms / 1000, UTC).astimezone().replace(tzinfo=None),
            "timestampType": 0,
            "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
        }
        for offset, record in enumerate(written)
    ]


def test_instants_do_not_depend_on_the_sessions_time_zone(spark: Any, bootstrap: str) -> None:
    topic = make_topic(bootstrap, [Record(b"v", timestamp_ms=1_357_020_900_123)])
    (row,) = (
        read(spark, bootstrap, topic).selectExpr("unix_millis(timestamp) as at", "string(timestamp) as text").collect()
    )
    assert row["at"] == 1_357_020_900_123
    assert row["text"] == "2013-01-01 01:15:00.123"


def test_every_record_of_every_partition_is_counted_once(spark: Any, bootstrap: str) -> None:
    """Promised: Spark batch"""
    sizes = [7_000, 0, 12_345, 1]
    topics = [
        make_topic(
            bootstrap,
            (Record(b"%d" % n, partition=p) for p, size in enumerate(sizes) for n in range(size)),
            partitions=len(sizes),
        )
        for _ in range(2)
    ]
    frame = read(spark, bootstrap, ",".join(topics))
    assert frame.rdd.getNumPartitions() == 6, "one task for each partition that has records"
    counted = frame.groupBy("topic", "partition").agg({"offset": "max", "value": "approx_count_distinct", "*": "count"})
    found = {(row["topic"], row["partition"]): (row["count(1)"], row["max(offset)"]) for row in counted.collect()}
    assert found == {
        (topic, partition): (size, size - 1) for topic in topics for partition, size in enumerate(sizes) if size
    }
    distinct = frame.select("topic", "partition", "offset").distinct().count()
    assert distinct == frame.count() == 2 * sum(sizes)


def test_a_limit_ends_the_read_and_the_next_read_is_complete(spark: Any, bootstrap: str) -> None:
    topic = make_topic(bootstrap, (Record(b"v" * 200, partition=n % 2) for n in range(60_000)), partitions=2)
    frame = read(spark, bootstrap, topic)
    assert [row["offset"] for row in frame.where("partition = 0").limit(3).collect()] == [0, 1, 2]
    assert frame.count() == 60_000


def test_offsets_by_partition_bound_the_read(spark: Any, bootstrap: str) -> None:
    topic = make_topic(bootstrap, [Record(b"v", partition=n % 2) for n in range(20)], partitions=2)
    rows = read(
        spark,
        bootstrap,
        topic,
        startingOffsets=f'{{"{topic}": {{"0": 8, "1": -2}}}}',
        endingOffsets=f'{{"{topic}": {{"0": -1, "1": 2}}}}',
    ).collect()
    assert sorted((row["partition"], row["offset"]) for row in rows) == [(0, 8), (0, 9), (1, 0), (1, 1)]


def test_an_empty_topic_is_an_empty_frame(spark: Any, bootstrap: str) -> None:
    frame = read(spark, bootstrap, make_topic(bootstrap, partitions=2), startingOffsets="earliest")
    assert frame.collect() == []
    assert frame.count() == 0


def test_sql_reads_a_topic_through_a_view(spark: Any, bootstrap: str) -> None:
    topic = make_topic(bootstrap, [Record(b"%d" % n) for n in range(10)])
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW numbers USING triokafka"
        f" OPTIONS ('kafka.bootstrap.servers' '{bootstrap}', subscribe '{topic}')"
    )
    (row,) = spark.sql("SELECT sum(int(string(value))) AS total FROM numbers").collect()
    assert row["total"] == 45


def test_options_are_refused_when_the_frame_is_created(spark: Any, bootstrap: str) -> None:
    for given, sentence in (
        ({"startingOffset": "earliest"}, "did you mean 'startingOffsets'?"),
        ({"minPartitions": "none"}, "'minPartitions' must be a whole number"),
        ({"kafka.fetch.max.bytes": "much"}, "kafka.fetch.max.bytes='much' cannot be used"),
        ({"kafka.auto.offset.reset": "latest"}, "Kafka option 'auto.offset.reset' is not supported"),
    ):
        with pytest.raises(Exception) as refused:
            read(spark, bootstrap, "any", **given)
        assert sentence in str(refused.value)


def test_options_invalid_for_batch_queries_are_refused_at_the_read(spark: Any, bootstrap: str) -> None:
    """Spark does not tell the source before that this is not a streaming query."""
    given = options(bootstrap, "any", startingOffsets="latest")
    assert "starting offset can't be latest for batch queries on Kafka" in failure(spark, given)


def test_a_user_defined_schema_is_refused(spark: Any, bootstrap: str) -> None:
    with pytest.raises(Exception, match="fixed schema and cannot be set with a custom one"):
        spark.read.schema("value string").format("triokafka").options(**options(bootstrap, "any")).load().count()


def test_an_unknown_topic_is_a_one_line_error(spark: Any, bootstrap: str) -> None:
    message = failure(spark, options(bootstrap, "nowhere", **{"fetchOffset.retryIntervalMs": "10"}))
    assert f"topic 'nowhere' does not exist at {bootstrap}" in message
    assert "site-packages/trio" not in message, "Spark shows the whole traceback, so the loop's frames are left out"


def test_an_unreachable_broker_is_a_one_line_error_in_time(spark: Any) -> None:
    given = options("127.0.0.1:1", "orders", **{"kafka.default.api.timeout.ms": "1000"})
    assert "no broker can be reached" in failure(spark, given)
