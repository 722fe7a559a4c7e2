"""Checkpoints move between Spark's own Kafka connector and this one, both ways, on the same topic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.spark_jars import connector_jars
from tests.interop.jvm import apache_kafka
from tests.spark.changing_topics import Topic
from tests.spark.topics import Record
from tests.support.broker_process import broker_process
from tests.support.spark_session import spark_session

pytestmark = pytest.mark.interop

_PATIENCE = 120  # seconds
FORMATS = ("kafka", "triokafka")


@pytest.fixture(scope="module", params=["kafka", "triokafka"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Each of the two brokers."""
    made = apache_kafka(tmp_path_factory.mktemp("kafka")) if request.param == "kafka" else broker_process()
    with made as address:
        yield address


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session with the connector's jars."""
    jars = ",".join(str(jar) for jar in connector_jars())
    with spark_session("triokafka checkpoints", str(tmp_path_factory.mktemp("home")), jars=jars) as session:
        yield session


class Sink:
    """Stores the values of each batch by its number; ``fails`` is the number of a batch for which it fails.

    ``rows`` has whole rows.
    """

    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}
        self.rows: dict[int, list[dict[str, Any]]] = {}
        self.fails = -1

    def __call__(self, frame: Any, number: int) -> None:
        if number == self.fails:
            raise RuntimeError("the sink is full")
        ordered = frame.orderBy("topic", "partition", "offset")
        self.rows[number] = [row.asDict(recursive=True) for row in ordered.collect()]
        self.batches[number] = sorted(int(row["value"] or -1) for row in self.rows[number])

    def values(self) -> list[int]:
        """Return all values, sorted."""
        return sorted(value for batch in self.batches.values() for value in batch)


def run(spark: Any, format_name: str, topic: Topic, checkpoint: Path, sink: Sink, **options: str) -> None:
    """Read all available data, and end."""
    given = {"kafka.bootstrap.servers": topic.bootstrap, "startingOffsets": "earliest"}
    if "subscribePattern" not in options:
        given["subscribe"] = topic.name
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
def test_each_connector_continues_where_the_other_stopped(
    spark: Any, bootstrap: str, tmp_path: Path, first: str
) -> None:
    """A query moves from one to the other and back, and no row is lost or repeated."""
    other = FORMATS[1 - FORMATS.index(first)]
    topic, sink = Topic(bootstrap, 12), Sink()
    for turn, name in enumerate((first, other, first, other)):
        topic.add(range(turn * 50, turn * 50 + 50))
        run(spark, name, topic, tmp_path, sink, maxOffsetsPerTrigger="24")
        assert sink.values() == list(range(turn * 50 + 50)), f"after {name}"


@pytest.mark.parametrize("first", FORMATS)
def test_a_batch_planned_by_one_connector_is_read_by_the_other(
    spark: Any, bootstrap: str, tmp_path: Path, first: str
) -> None:
    """A batch in the log without a commit is read from the same range; its first offsets are those in sources/0/0."""
    other = FORMATS[1 - FORMATS.index(first)]
    topic, sink = Topic(bootstrap, 3), Sink()
    topic.add(range(30))
    initial_offsets = {"initialOffsetsPath": str(tmp_path / "sources" / "0" / "0")}
    sink.fails = 0
    with pytest.raises(Exception, match="the sink is full"):
        run(spark, first, topic, tmp_path, sink, **(initial_offsets if first == "triokafka" else {}))
    topic.add(range(30, 60))
    sink.fails = -1
    run(spark, other, topic, tmp_path, sink, **(initial_offsets if other == "triokafka" else {}))
    assert sink.batches[0] == list(range(30))
    assert sink.values() == list(range(60))


def test_micro_batches_have_the_same_rows(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    """The batches are equal: nulls, zero-length values and headers; with limits, and after partitions and topics were
    added.
    """
    first = Topic(bootstrap, 3)
    second = Topic(bootstrap, 2, name=f"{first.name}-second")
    sinks = {name: Sink() for name in FORMATS}

    def write(topic: Topic, start: int) -> None:
        topic.write(
            Record(
                None if number % 7 == 0 else b"%d" % number,
                None if number % 5 == 0 else b"" if number % 5 == 1 else b"key %d" % number,
                number % topic.partitions,
                headers=(("h", b""), ("h", None)) if number % 3 else (),
            )
            for number in range(start, start + 60)
        )

    write(first, 0)
    for turn in range(3):
        for name, sink in sinks.items():
            more = {"subscribePattern": f"{first.name}.*", "includeHeaders": "true", "maxOffsetsPerTrigger": "25"}
            run(spark, name, first, tmp_path / name, sink, **more)
        assert sinks["triokafka"].rows == sinks["kafka"].rows, turn
        first.grow(4 + turn)
        write(first, 100 + turn)
        write(second, 200 + turn)
    assert sum(map(len, sinks["kafka"].rows.values())) == 300


def test_recreated_topic_is_the_same_loss(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    """The error says "was changed from 2 to 1", in the connector's words."""
    topic = Topic(bootstrap, 1)
    topic.add([1, 2])
    sinks = {name: Sink() for name in FORMATS}
    for name, sink in sinks.items():
        run(spark, name, topic, tmp_path / name, sink)
    topic.delete()
    topic.create()
    topic.add([3])
    for name, sink in sinks.items():
        with pytest.raises(Exception, match=r"(?s)offset was changed from 2 to 1"):
            run(spark, name, topic, tmp_path / name, sink)
    for name, sink in sinks.items():
        run(spark, name, topic, tmp_path / name, sink, failOnDataLoss="false")
    topic.add([4, 5])
    for name, sink in sinks.items():
        run(spark, name, topic, tmp_path / name, sink, failOnDataLoss="false")
    assert sinks["triokafka"].values() == sinks["kafka"].values() == [1, 2, 4, 5]


@pytest.mark.parametrize(("sizes", "limit"), [((101, 11, 1), 10), ((29, 71), 100), ((58, 29, 13), 100)])
def test_the_offsets_in_the_checkpoints_are_the_same(
    spark: Any, bootstrap: str, tmp_path: Path, sizes: tuple[int, ...], limit: int
) -> None:
    """The same limits make the same batches, to the offset, including rounding: 29 of a hundred must become 28 of a
    hundred.
    """
    topic = Topic(bootstrap, len(sizes))
    for partition, size in enumerate(sizes):
        topic.add_to(partition, range(size))
    logs = {}
    for name in FORMATS:
        run(spark, name, topic, tmp_path / name, Sink(), maxOffsetsPerTrigger=str(limit))
        files = sorted((tmp_path / name / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
        logs[name] = [json.loads(file.read_text().splitlines()[2]) for file in files]
    assert logs["kafka"] == logs["triokafka"]
