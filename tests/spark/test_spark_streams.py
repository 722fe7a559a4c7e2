"""Streaming queries in Spark itself: the behaviour that only Spark can show.

One session serves all tests of this file.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.spark.changing_topics import Topic, committed
from tests.spark.engine import SparkQuery, offsets, sizes, values
from triokafka.spark.listener.offset_commit_listener import OffsetCommitListener
from triokafka.spark.listener.query_lag import LogExporter, PrometheusExporter, lag
from triokafka.structs import TopicPartition

_PATIENCE = 180  # seconds, for a busy machine
TELLS_START = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 2)
"""Earlier versions pass sources no start and no limit: `Trigger.AvailableNow` is one batch, and ends are not
reported.
"""


def stream(spark: Any, topic: Topic, **options: str) -> Any:
    given = {"kafka.bootstrap.servers": topic.bootstrap, "subscribe": topic.name, "startingOffsets": "earliest"}
    return spark.readStream.format("triokafka").options(**{**given, **options}).load()


def run_available(frame: Any, checkpoint: Path, name: str) -> Any:
    """Read the available data into a table in memory; return the query, which has ended."""
    query = (
        frame.writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(_PATIENCE)
    return query


class SignallingListener(OffsetCommitListener):
    """A listener that signals the end of the query, after its last batch."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.ended = threading.Event()

    def onQueryTerminated(self, event: Any) -> None:
        """Signal the end."""
        super().onQueryTerminated(event)
        self.ended.set()


def test_available_now_in_batches_with_lag_and_commits_of_the_last_one(
    spark: Any, bootstrap: str, tmp_path: Path
) -> None:
    """Metrics of the offsets behind the latest one, with a rate limit: 15 records, at most 5 in a batch.

    Promised: Spark micro-batch
    """
    topic = Topic(bootstrap, 5)
    topic.add(range(15))
    lags: list[tuple[int, dict[str, str]]] = []
    page = PrometheusExporter()
    listener = SignallingListener(
        "lag-tools",
        bootstrap_servers=bootstrap,
        topics=[topic.name],
        exporters=[lambda found: lags.append((found.batch_id, found.metrics())), page, LogExporter()],
    )
    spark.streams.addListener(listener)
    try:
        query = run_available(stream(spark, topic, maxOffsetsPerTrigger="5"), tmp_path, "fifteen")
        batches = [one["numInputRows"] for one in query.recentProgress if one["numInputRows"]]
        assert batches == ([5, 5, 5] if TELLS_START else [15])
        assert listener.ended.wait(_PATIENCE)
    finally:
        spark.streams.removeListener(listener)
    assert committed(bootstrap, "lag-tools") == {TopicPartition(topic.name, number): 3 for number in range(5)}
    assert spark.table("fifteen").count() == 15
    if not TELLS_START:
        assert lags[0][0] == 0
        return
    behind = [dict.fromkeys(("minOffsetsBehindLatest", "maxOffsetsBehindLatest"), str(left)) for left in (2, 1, 0)]
    averages = [{"avgOffsetsBehindLatest": f"{left}.0"} for left in (2, 1, 0)]
    assert lags[:3] == [(number, {**behind[number], **averages[number]}) for number in range(3)]
    (last,) = lag(query)
    assert set(last.behind.values()) == {0}


_CONFS_2_4_3 = json.dumps(
    {
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
        ),
        "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion": "2",
        "spark.sql.streaming.multipleWatermarkPolicy": "min",
        "spark.sql.streaming.aggregation.stateFormatVersion": "2",
        "spark.sql.shuffle.partitions": "5",
    }
)


@pytest.mark.parametrize("conf", ["{}", pytest.param(_CONFS_2_4_3, marks=pytest.mark.long)], ids=["4", "2.4.3"])
def test_a_checkpoint_of_the_connector_is_resumed(spark: Any, bootstrap: str, tmp_path: Path, conf: str) -> None:
    """Compact JSON and sources/0/0, as the connector writes them after its first batch; and, with Spark's other files
    of that version, "Kafka connector should be able to resume from a checkpoint of Spark 2.4.3".

    Promised: resume the other's checkpoint
    """
    topic = Topic(bootstrap, 2)
    topic.add(range(10))
    first = json.dumps({topic.name: {"0": 0, "1": 0}}, separators=(",", ":"))
    reached = json.dumps({topic.name: {"1": 2, "0": 3}}, separators=(",", ":"))
    confs = f'{{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{conf}}}'
    for name, content in {
        "metadata": '{"id":"6f9ff5a5-7c6f-4b8e-a1b5-1f1f2a3b4c5d"}',
        "sources/0/0": f"\0v1\n{first}",
        "offsets/0": f"v1\n{confs}\n{reached}",
        "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    asked = SparkQuery(spark, tmp_path, {"kafka.bootstrap.servers": bootstrap, "subscribe": topic.name})
    asked.start("available now")
    asked.process_all()
    # Partition 0 has the even numbers, 1 the odd ones.
    assert values(asked) == [5, 6, 7, 8, 9]
    assert offsets(tmp_path, 1) == {topic.name: {"0": 5, "1": 5}}


def test_windows_and_watermark_on_the_timestamp(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    """KafkaSource with watermark"""
    from pyspark.sql import functions

    topic = Topic(bootstrap, 1)
    start = 1_700_000_000_000
    topic.add([1, 2], timestamp_ms=start)
    topic.add([3], timestamp_ms=start + 10_000)
    topic.add([4], timestamp_ms=start + 40_000)
    counted = (
        stream(spark, topic, maxOffsetsPerTrigger="2")
        .withWatermark("timestamp", "10 seconds")
        .groupBy(functions.window("timestamp", "5 seconds").alias("window"))
        .count()
        .select(functions.unix_millis("window.start").alias("start"), "count")
    )
    found: set[Any] = set()

    def keep(frame: Any, number: int) -> None:
        found.update((row["start"], row["count"]) for row in frame.collect())

    def run() -> None:
        writer = counted.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path))
        assert writer.trigger(availableNow=True).start().awaitTermination(_PATIENCE)

    run()
    if not TELLS_START:
        # It was one batch, and the watermark is that of the previous one.
        topic.add([5], timestamp_ms=start + 40_000)
        run()
    assert found == {(start, 2), (start + 10_000, 1)}, "the window of the last record is still open"


def test_a_self_join_is_complete_in_every_batch(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    """ensure stream-stream self-join generates only one offset in log and correct metrics

    Spark 4.3 creates two sources from one frame that is joined with itself, even for its own rate source; they must
    agree on every batch.
    """
    topic = Topic(bootstrap, 2)
    topic.add([1, 2, 2, 3])
    numbers = stream(spark, topic).selectExpr("int(string(value)) AS value")
    query = run_available(numbers.join(numbers, "value"), tmp_path, "joined")
    assert sorted(row["value"] for row in spark.table("joined").collect()) == [1, 2, 2, 2, 2, 3]
    assert len(set((tmp_path / "offsets" / "0").read_text().splitlines()[2:])) == 1
    (first, *_) = [one for one in query.recentProgress if one["numInputRows"]]
    assert {one["numInputRows"] for one in first["sources"]} == {4}


def test_a_query_continues_from_where_it_was_stopped(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    """A continual query; data while it was stopped, and added partitions."""
    topic = Topic(bootstrap, 5)
    topic.add(range(5))
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic.name, "startingOffsets": "earliest"}
    asked = SparkQuery(spark, tmp_path, {**given, "maxPartitions": "1"})
    asked.start()
    asked.process_all()
    asked.stop()
    topic.grow(10)
    topic.add(range(5, 25))
    asked.start()
    asked.process_all()
    asked.stop()
    assert values(asked) == list(range(25))
    assert sizes(asked) == [5, 20]


@pytest.mark.parametrize(
    "trigger", [{"continuous": "1 second"}, {"realTime": "5 minutes"}], ids=lambda one: next(iter(one))
)
def test_continuous_and_real_time_triggers_are_not_available_to_python_sources(
    spark: Any, bootstrap: str, tmp_path: Path, trigger: dict[str, str]
) -> None:
    """Promised: continuous and real-time mode.

    When this fails, Spark has made them available, and docs/spark.md must state how to use them.
    """
    writer = stream(spark, Topic(bootstrap, 1)).writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    with pytest.raises(Exception, match=r"(?i)continuous|real.?time|unexpected keyword"):
        writer.outputMode("update").trigger(**trigger).start().awaitTermination(_PATIENCE)


@pytest.mark.long
def test_two_sources_of_which_one_is_exhausted(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    """SPARK-22956: currentPartitionOffsets should be set when no new data comes in"""
    slow, fast = Topic(bootstrap, 1), Topic(bootstrap, 1)
    slow.add(range(10))
    fast.add(range(100, 120))
    found: dict[int, list[int]] = {}

    def keep(frame: Any, number: int) -> None:
        found[number] = sorted(row["value"] for row in frame.collect())

    def run() -> None:
        query = writer.start()
        query.processAllAvailable()
        query.stop()

    both = stream(spark, slow, maxOffsetsPerTrigger="5").union(stream(spark, fast, maxOffsetsPerTrigger="5"))
    numbers = both.selectExpr("int(string(value)) AS value")
    writer = numbers.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path))
    run()
    five_each = [[*range(5), *range(100, 105)], [*range(5, 10), *range(105, 110)], [*range(110, 115)]]
    batches = [*five_each, [*range(115, 120)]]
    assert [found[number] for number in sorted(found) if found[number]] == batches
    fast.add(range(120, 130))
    run()
    batches += [[*range(120, 125)], [*range(125, 130)]]
    slow.add([10])
    run()
    assert [found[number] for number in sorted(found) if found[number]] == [*batches, [10]]


@pytest.mark.long
def test_input_row_metrics(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    """input row metrics: records from before the start of the query are not counted"""
    topic = Topic(bootstrap, 5)
    topic.add([-1])
    frame = stream(spark, topic, startingOffsets="latest").selectExpr("int(string(value)) + 1 AS value")
    query = frame.writeStream.format("memory").queryName("counted").option("checkpointLocation", str(tmp_path)).start()
    query.processAllAvailable()
    topic.add([1, 2, 3])
    query.processAllAvailable()
    query.stop()
    assert sorted(row["value"] for row in spark.table("counted").collect()) == [2, 3, 4]
    assert sum(progress["numInputRows"] for progress in query.recentProgress) == 3


@pytest.mark.long
def test_metrics_without_a_rate_limit(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    """test custom metrics - no rate limit: the lag is zero"""
    topic = Topic(bootstrap, 2)
    topic.add(range(10))
    query = run_available(stream(spark, topic), tmp_path, "unlimited")
    (found,) = lag(query)
    assert found.metrics() == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "0",
        "avgOffsetsBehindLatest": "0.0",
    }
