"""The range reader in ``mapInArrow``, for Spark without Python data sources."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.topics import Record, make_topic, options
from triokafka.errors import ConfigurationError, UnknownTopicOrPartitionError
from triokafka.spark import read_ranges


def test_the_frame_equals_that_of_the_data_source(spark: Any, bootstrap: str) -> None:
    written = (
        Record(b"%d" % n, b"k" if n % 2 else None, n % 3, headers=(("h", b"1"),) if n % 5 else ()) for n in range(900)
    )
    topic = make_topic(bootstrap, written, partitions=4)
    given = options(bootstrap, topic, includeHeaders="true", startingOffsets="earliest")
    ours = read_ranges(spark, given)
    source = spark.read.format("triokafka").options(**given).load()
    assert ours.schema == source.schema
    assert ours.rdd.getNumPartitions() == 3, "one task for each partition with records"
    order = ["partition", "offset"]
    assert ours.orderBy(order).collect() == source.orderBy(order).collect()


def test_every_record_is_read_once_with_all_of_its_columns(spark: Any, bootstrap: str) -> None:
    """No data source is used, because Spark 3.5 has none in Python and runs this test, too."""
    records = [
        Record(b"%d" % n if n % 7 else None, b"k" if n % 2 else None, n % 3, 1_600_000_000_000 + n) for n in range(90)
    ]
    records[0] = records[0]._replace(headers=(("h", b"1"), ("h", None)))
    topic = make_topic(bootstrap, records, partitions=3)
    frame = read_ranges(spark, options(bootstrap, topic, includeHeaders="true", maxPartitions="2"))
    assert frame.rdd.getNumPartitions() == 2
    rows = frame.selectExpr("*", "unix_millis(timestamp) AS ms").orderBy("partition", "offset").collect()
    assert [(row.topic, row.partition, row.offset, row.key, row.value, row.ms, row.timestampType) for row in rows] == [
        (topic, partition, offset, record.key, record.value, record.timestamp_ms, 0)
        for partition in range(3)
        for offset, record in enumerate(record for record in records if record.partition == partition)
    ]
    assert [tuple(header) for header in rows[0].headers] == [("h", b"1"), ("h", None)]
    assert not any(row.headers for row in rows[1:])
    assert frame.where("partition = 1").count() == frame.where("partition = 1").count() == 30, "each action reads again"


def test_an_empty_topic_is_an_empty_frame(spark: Any, bootstrap: str) -> None:
    assert read_ranges(spark, options(bootstrap, make_topic(bootstrap))).count() == 0


def test_invalid_options_fail_before_any_task(spark: Any, bootstrap: str) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="nowhere"):
        read_ranges(spark, options(bootstrap, "nowhere", **{"fetchOffset.retryIntervalMs": "10"}))
    with pytest.raises(ConfigurationError):
        read_ranges(spark, {"subscribe": "t"})
