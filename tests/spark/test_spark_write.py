"""``write.format("triokafka")`` in a real Spark session: the cases of KafkaSinkSuite, by their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import triokafka
from tests.spark.topics import make_topic


def sink(frame: Any, bootstrap: str, topic: str | None = None, **more: str) -> Any:
    given = {"kafka.bootstrap.servers": bootstrap, "kafka.max.block.ms": "5000", **more}
    writer = frame.write if not frame.isStreaming else frame.writeStream
    writer = writer.format("triokafka").options(**given)
    return writer if topic is None else writer.option("topic", topic)


def values(bootstrap: str, topic: str) -> list[bytes]:
    reader = triokafka.read_topic(topic, bootstrap_servers=bootstrap, columns=["value"])
    return sorted(reader.read_all()["value"].to_pylist())


def lines(spark: Any, directory: Path, *written: str) -> Any:
    """Return a streaming frame with a column ``value`` of these lines."""
    directory.mkdir(exist_ok=True)
    more_lines(directory, *written)
    return spark.readStream.format("text").load(str(directory))


def more_lines(directory: Path, *written: str) -> None:
    (directory / f"{len(list(directory.iterdir()))}.txt").write_text("".join(f"{line}\n" for line in written))


def run(writer: Any, checkpoint: Path, *, mode: str = "append") -> Any:
    """Run a streaming write over the available data, and return its query."""
    query = writer.option("checkpointLocation", str(checkpoint)).outputMode(mode).trigger(availableNow=True).start()
    try:
        query.awaitTermination(60)
    finally:
        query.stop()
    return query


def test_batch_write_to_kafka(spark: Any, bootstrap: str) -> None:
    """Promised: sink"""
    topic = make_topic(bootstrap, partitions=3)
    given = spark.sql(
        "SELECT 'ignored' AS topic, string(id) AS value, string(id) AS key, double(id) AS another,"
        " IF(id % 2 = 0, array(named_struct('key', 'h', 'value', CAST('1' AS BINARY)),"
        " named_struct('key', 'h', 'value', CAST(NULL AS BINARY))), NULL) AS headers FROM range(1000)"
    )
    sink(given, bootstrap, topic).mode("append").save()
    found = triokafka.read_topic(topic, bootstrap_servers=bootstrap).read_all().to_pylist()
    found.sort(key=lambda row: int(row["key"]))
    assert [(int(row["key"]), int(row["value"])) for row in found] == [(n, n) for n in range(1000)]
    assert {row["partition"] for row in found} == {0, 1, 2}
    assert found[1]["headers"] is None
    assert found[2]["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]


def test_spark_20496_batch_enforce_analyzed_plans(spark: Any, bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    sink(spark.range(1, 1000).selectExpr("to_json(struct(*)) AS value"), bootstrap, topic).mode("append").save()
    assert len(values(bootstrap, topic)) == 999


def test_batch_null_topic_field_value_and_no_topic_option(spark: Any, bootstrap: str) -> None:
    frame = spark.sql("SELECT CAST(NULL AS STRING) AS topic, '1' AS value")
    with pytest.raises(Exception, match="null topic present in the data"):
        sink(frame, bootstrap).mode("append").save()


@pytest.mark.parametrize("mode", ["overwrite", "ignore", "errorifexists"])
def test_batch_unsupported_save_modes(spark: Any, bootstrap: str, mode: str) -> None:
    """Spark itself refuses its default mode for every Python source; the connector accepts it."""
    topic = make_topic(bootstrap)
    with pytest.raises(Exception) as refused:
        sink(spark.sql("SELECT '1' AS value"), bootstrap, topic).mode(mode).save()
    assert "Overwrite not allowed for Kafka" in str(refused.value) or "UNSUPPORTED_DATA_SOURCE_SAVE_MODE" in str(
        refused.value
    )
    assert values(bootstrap, topic) == []


def test_write_data_with_bad_schema(spark: Any, bootstrap: str) -> None:
    for columns, topic, sentence in (
        ("'1' AS key, '1' AS value", None, "topic option required when no 'topic' attribute is present"),
        ("'t' AS topic, '1' AS key", None, "Required attribute 'value' not found"),
        ("'t' AS topic, 1 AS value", None, "value must be a(n) string or binary"),
        ("'1' AS value, '1' AS partition", "t", "partition must be a(n) int"),
    ):
        with pytest.raises(Exception) as refused:
            sink(spark.sql(f"SELECT {columns}"), bootstrap, topic).mode("append").save()
        assert sentence in str(refused.value)


def test_streaming_write_to_kafka_with_topic_field(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    topics = [make_topic(bootstrap) for _ in range(2)]
    given = lines(spark, tmp_path / "in", *map(str, range(1, 6)))
    frame = given.selectExpr(f"IF(int(value) % 2 = 0, '{topics[0]}', '{topics[1]}') AS topic", "value")
    run(sink(frame, bootstrap), tmp_path / "checkpoint")
    assert [values(bootstrap, topic) for topic in topics] == [[b"2", b"4"], [b"1", b"3", b"5"]]
    more_lines(tmp_path / "in", "6", "7")
    run(sink(frame, bootstrap), tmp_path / "checkpoint")
    assert [values(bootstrap, topic) for topic in topics] == [[b"2", b"4", b"6"], [b"1", b"3", b"5", b"7"]]


def test_streaming_sink_progress_is_produced(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    topic = make_topic(bootstrap)
    query = run(sink(lines(spark, tmp_path / "in", "1", "2", "3"), bootstrap, topic), tmp_path / "checkpoint")
    assert any(progress["sink"]["numOutputRows"] == 3 for progress in query.recentProgress)
    assert values(bootstrap, topic) == [b"1", b"2", b"3"]


def test_streaming_aggregates_are_written_fully_in_complete_mode(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    topic = make_topic(bootstrap)
    counts = lines(spark, tmp_path / "in", "a", "b", "a").groupBy("value").count()
    frame = counts.selectExpr("concat(value, count) AS value")
    run(sink(frame, bootstrap, topic), tmp_path / "checkpoint", mode="complete")
    more_lines(tmp_path / "in", "a")
    run(sink(frame, bootstrap, topic), tmp_path / "checkpoint", mode="complete")
    assert values(bootstrap, topic) == [b"a2", b"a3", b"b1", b"b1"]


def test_streaming_update_mode_is_not_available_to_python_sinks(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    """Spark's connector has this mode. If the test fails, Spark offers it to Python sources: update docs/spark.md."""
    counts = lines(spark, tmp_path / "in", "a").groupBy("value").count().select("value")
    with pytest.raises(Exception, match="does not support Update mode"):
        run(sink(counts, bootstrap, "t"), tmp_path / "checkpoint", mode="update")


def test_streaming_write_to_non_existing_topic(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    own = {"kafka.max.block.ms": "500", "kafka.allow.auto.create.topics": "false"}
    with pytest.raises(Exception, match="writing to topic 'nowhere' failed"):
        run(sink(lines(spark, tmp_path / "in", "1"), bootstrap, "nowhere", **own), tmp_path / "checkpoint")


def test_streaming_exception_on_config_serializer(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    given = lines(spark, tmp_path / "in", "1")
    for name in ("key.serializer", "value.serializer"):
        with pytest.raises(Exception, match=f"Kafka option '{name}' is not supported"):
            run(sink(given, bootstrap, "t", **{f"kafka.{name}": "foo"}), tmp_path / name)
