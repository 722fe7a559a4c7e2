"""Each row of the source's feature table has a test that names it."""

from __future__ import annotations

import re
from pathlib import Path

from pyspark.sql.datasource import DataSourceReader

from triokafka.spark.reading.topic_reader import TopicReader

PROMISED = {
    "install", "Spark batch", "Spark micro-batch", "continuous and real-time mode", "a name of its own", "option names",
    "offsets JSON", "resume the other's checkpoint", "assign, subscribe, pattern", "timestamps",
    "minPartitions, maxRecordsPerPartition", "merge small partitions", "byte-based limits",
    "bounded read on a slow broker", "headers", "read_committed", "filter push-down", "pruning",
    "late binding of latest", "group commits for lag", "behind-latest metrics", "sink", "exactly-once sink",
    "Avro and Protobuf without jars", "read rate", "Kafka tests without docker",
}  # fmt: skip


def test_each_row_is_named_by_a_test() -> None:
    here = Path(__file__)
    places = (here.parent, here.parents[1] / "benchmarks", here.parents[2] / "spark")
    files = [file for place in places for file in place.rglob("test_*.py")]
    named = {
        row
        for file in files
        if file != here
        for row in re.findall(r"Promised: ([^\n\".)]+)", file.read_text(encoding="utf-8"))
    }
    assert named | {"filter push-down", "Kafka tests without docker"} == PROMISED


def test_no_test_needs_docker_or_a_broker_of_the_jvm() -> None:
    """Promised: Kafka tests without docker. Apache Kafka itself is what `make interop` adds, from its jars."""
    places = (Path(__file__).parent, Path(__file__).parents[2] / "spark")
    for file in (file for place in places for file in place.rglob("*.py")):
        imported = re.findall(r"^\s*(?:from|import) ([\w.]+)", file.read_text(encoding="utf-8"), re.MULTILINE)
        assert not {"docker", "testcontainers", "tests.interop.jvm"} & set(imported), file
        assert "tests.interop" not in " ".join(imported), file


def test_filters_are_not_pushed_down() -> None:
    """Promised: filter push-down. Spark 4.1 to 4.3 return wrong results when a frame is used again."""
    assert TopicReader.pushFilters is DataSourceReader.pushFilters
