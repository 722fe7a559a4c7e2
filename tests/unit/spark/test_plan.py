"""Which offsets a read covers (`spark/3.1`, `spark/3.4`)."""

from __future__ import annotations

import pytest

from triokafka.errors import ConfigurationError, OffsetOutOfRangeError
from triokafka.spark.options import ReadOptions
from triokafka.spark.plan import LogBounds, OffsetRange, plan
from triokafka.structs import TopicPartition

ORDERS = {TopicPartition("orders", 1): LogBounds(0, 7), TopicPartition("orders", 0): LogBounds(10, 20)}


def planned(
    logs: dict[TopicPartition, LogBounds] | None = None, subscribe: str = "orders", **options: str
) -> list[OffsetRange]:
    given = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": subscribe, **options}
    return plan(ReadOptions.parse(given), ORDERS if logs is None else logs)


def test_everything_is_one_range_for_each_partition_in_order():
    assert planned() == [OffsetRange("orders", 0, 10, 20), OffsetRange("orders", 1, 0, 7)]


def test_topics_come_in_the_order_they_were_named_in():
    logs = {TopicPartition("a", 0): LogBounds(0, 1), TopicPartition("b", 0): LogBounds(0, 1)}
    assert [found.topic for found in planned(logs, subscribe="b,a")] == ["b", "a"]


def test_partitions_without_records_get_no_task():
    logs = {TopicPartition("orders", 0): LogBounds(4, 4), TopicPartition("orders", 1): LogBounds(0, 1)}
    assert planned(logs) == [OffsetRange("orders", 1, 0, 1)]


def test_an_empty_topic_has_an_empty_plan():
    assert planned({TopicPartition("orders", 0): LogBounds(0, 0)}) == []


def test_offsets_by_partition_are_taken_and_special_ones_resolved():
    found = planned(startingOffsets='{"orders": {"0": 12, "1": -2}}', endingOffsets='{"orders": {"0": -1, "1": 5}}')
    assert found == [OffsetRange("orders", 0, 12, 20), OffsetRange("orders", 1, 0, 5)]


def test_a_range_may_end_where_the_log_starts():
    assert planned(endingOffsets='{"orders": {"0": 10, "1": 0}}') == []


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
@pytest.mark.parametrize(
    ("offsets", "specified"),
    [
        ('{"orders": {"0": 12}}', "Specified: orders-0 Assigned: orders-0, orders-1"),
        ('{"orders": {"0": 12, "1": 3, "2": 0}}', "Specified: orders-0, orders-1, orders-2 Assigned:"),
    ],
)
def test_offsets_must_name_exactly_the_partitions_that_there_are(option: str, offsets: str, specified: str):
    with pytest.raises(ConfigurationError, match="you must specify all TopicPartitions") as refused:
        planned(**{option: offsets})
    assert specified in str(refused.value)


def test_deleted_offsets_are_an_error_and_no_short_read():
    with pytest.raises(OffsetOutOfRangeError, match="offset 3 of orders-0, and the log starts at 10"):
        planned(startingOffsets='{"orders": {"0": 3, "1": 0}}')


def test_an_end_whose_records_were_all_deleted_is_an_error_too():
    with pytest.raises(OffsetOutOfRangeError, match="endingOffsets asks for offset 9 of orders-0"):
        planned(endingOffsets='{"orders": {"0": 9, "1": 7}}')


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_offsets_beyond_the_end_are_an_error_and_never_waited_for(option: str):
    with pytest.raises(OffsetOutOfRangeError, match=f"{option} asks for offset 8 of orders-1, and the log ends at 7"):
        planned(**{option: '{"orders": {"0": 12, "1": 8}}'})


def test_a_range_that_ends_before_it_starts_is_refused():
    with pytest.raises(ConfigurationError, match=r"startingOffsets \(15\) is after endingOffsets \(12\) in orders-0"):
        planned(startingOffsets='{"orders": {"0": 15, "1": 0}}', endingOffsets='{"orders": {"0": 12, "1": 7}}')
