"""The range reader in ``mapInArrow``, for Spark without Python data sources (`spark/5.9`)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.topics import Record, make_topic, options
from triokafka.errors import ConfigurationError, UnknownTopicOrPartitionError
from triokafka.spark import read_ranges


def test_the_frame_is_the_one_of_the_data_source(spark: Any, bootstrap: str):
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


def test_an_empty_topic_is_an_empty_frame(spark: Any, bootstrap: str):
    assert read_ranges(spark, options(bootstrap, make_topic(bootstrap))).count() == 0


def test_what_is_wrong_is_told_before_any_task(spark: Any, bootstrap: str):
    with pytest.raises(UnknownTopicOrPartitionError, match="nowhere"):
        read_ranges(spark, options(bootstrap, "nowhere", **{"fetchOffset.retryIntervalMs": "10"}))
    with pytest.raises(ConfigurationError):
        read_ranges(spark, {"subscribe": "t"})
