"""Checkpoints move between Spark's own Kafka connector and this one, both ways, on the same topic (`spark/3.2`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.spark_jars import connector_jars
from tests.broker_process import broker_process
from tests.spark.changing_topics import Topic

pytestmark = pytest.mark.interop

_PATIENCE = 120  # seconds
FORMATS = ("kafka", "triokafka")


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with broker_process() as address:
        yield address


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A session that has the connector's jars."""
    import triokafka.spark

    triokafka.spark.prepare_java()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("triokafka checkpoints")
    settings = {
        **triokafka.spark.session_conf(),
        "spark.jars": ",".join(str(jar) for jar in connector_jars()),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


class Sink:
    """Keeps the values of each batch by its number; ``fails`` is the number of a batch that it cannot keep."""

    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}
        self.fails = -1

    def __call__(self, frame: Any, number: int) -> None:
        if number == self.fails:
            raise RuntimeError("the sink is full")
        self.batches[number] = sorted(int(row["value"]) for row in frame.selectExpr("string(value) AS value").collect())

    def values(self) -> list[int]:
        """All of them, sorted."""
        return sorted(value for batch in self.batches.values() for value in batch)


def run(spark: Any, format_name: str, topic: Topic, checkpoint: Path, sink: Sink, **options: str) -> None:
    """Read what there is, and end."""
    given = {"kafka.bootstrap.servers": topic.bootstrap, "subscribe": topic.name, "startingOffsets": "earliest"}
    query = (
        spark.readStream.format(format_name)
        .options(**{**given, **options})
        .load()
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(_PATIENCE)


@pytest.mark.parametrize("first", FORMATS)
def test_each_goes_on_where_the_other_stopped(spark: Any, bootstrap: str, tmp_path: Path, first: str):
    """`spark/3.2`: a query moves from one to the other and back, and no row is lost or doubled"""
    other = FORMATS[1 - FORMATS.index(first)]
    topic, sink = Topic(bootstrap, 12), Sink()
    for turn, name in enumerate((first, other, first, other)):
        topic.add(range(turn * 50, turn * 50 + 50))
        run(spark, name, topic, tmp_path, sink, maxOffsetsPerTrigger="24")
        assert sink.values() == list(range(turn * 50 + 50)), f"after {name}"


@pytest.mark.parametrize("first", FORMATS)
def test_a_batch_that_one_has_planned_is_read_by_the_other(spark: Any, bootstrap: str, tmp_path: Path, first: str):
    """A batch in the log without a commit is read from the same range; its first offsets are those in sources/0/0."""
    other = FORMATS[1 - FORMATS.index(first)]
    topic, sink = Topic(bootstrap, 3), Sink()
    topic.add(range(30))
    kept = {"initialOffsetsPath": str(tmp_path / "sources" / "0" / "0")}
    sink.fails = 0
    with pytest.raises(Exception, match="the sink is full"):
        run(spark, first, topic, tmp_path, sink, **(kept if first == "triokafka" else {}))
    topic.add(range(30, 60))
    sink.fails = -1
    run(spark, other, topic, tmp_path, sink, **(kept if other == "triokafka" else {}))
    assert sink.batches[0] == list(range(30))
    assert sink.values() == list(range(60))


def test_the_offsets_in_the_checkpoints_are_the_same(spark: Any, bootstrap: str, tmp_path: Path):
    """The same limits make the same batches, to the offset."""
    topic = Topic(bootstrap, 3)
    for partition, written in enumerate((range(101), range(11), range(1))):
        topic.add_to(partition, written)
    logs = {}
    for name in FORMATS:
        run(spark, name, topic, tmp_path / name, Sink(), maxOffsetsPerTrigger="10")
        files = sorted((tmp_path / name / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
        logs[name] = [json.loads(file.read_text().splitlines()[2]) for file in files]
    assert logs["kafka"] == logs["triokafka"]
