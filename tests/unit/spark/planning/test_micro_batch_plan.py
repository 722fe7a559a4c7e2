"""The ranges of one micro-batch, and the records of it that the brokers no longer have."""

from __future__ import annotations

import pytest

from triokafka.spark.planning.data_loss import KafkaDataLossError, report_loss
from triokafka.spark.planning.micro_batch_plan import (
    AvailableNowTarget,
    ChangedTargetError,
    Ranges,
    batch_ranges,
    went_back,
)
from triokafka.spark.planning.tasks import TaskRange
from triokafka.structs import TopicPartition

A, B, C = (TopicPartition("orders", number) for number in range(3))


def ranges(found: Ranges) -> dict[TopicPartition, tuple[int, int]]:
    return {one.topic_partition: (one.start, one.end) for one in found.ranges}


def loss(found: Ranges) -> str:
    """Return the message of the only loss when it fails the query."""
    ((kind, sentence),) = found.losses
    with pytest.raises(KafkaDataLossError) as failed:
        report_loss(True, kind, sentence)
    return str(failed.value)


def test_ranges_lie_between_the_two_offsets_and_empty_ones_are_left_out() -> None:
    found = batch_ranges({B: 2, A: 5, C: 1}, {B: 7, A: 6, C: 1}, {})
    assert found == Ranges([TaskRange("orders", 0, 5, 6), TaskRange("orders", 1, 2, 7)], [])


def test_a_new_partition_is_read_from_its_start() -> None:
    assert batch_ranges({A: 5}, {A: 5, B: 3}, {B: 0}) == Ranges([TaskRange("orders", 1, 0, 3)], [])


def test_a_new_partition_that_does_not_begin_at_zero_has_lost_records() -> None:
    found = batch_ranges({}, {B: 9}, {B: 4})
    assert ranges(found) == {B: (4, 9)}
    message = loss(found)
    assert "[KAFKA_DATA_LOSS.ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO]" in message
    assert "Added partition orders-1 starts from 4 instead of 0" in message


def test_a_new_partition_that_is_already_deleted_is_a_loss_and_not_read() -> None:
    found = batch_ranges({A: 0}, {A: 1, B: 9}, {})
    assert ranges(found) == {A: (0, 1)}
    message = loss(found)
    assert "INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS" in message and "orders-1" in message


def test_partitions_that_vanished_are_a_loss() -> None:
    found = batch_ranges({A: 0, B: 4, C: 1}, {A: 1}, {})
    assert ranges(found) == {A: (0, 1)}
    message = loss(found)
    assert "PARTITIONS_DELETED" in message and "orders-1, orders-2" in message


def test_a_partition_that_ends_before_its_start_was_recreated() -> None:
    found = batch_ranges({A: 2}, {A: 1}, {})
    assert found.ranges == []
    message = loss(found)
    assert "PARTITION_OFFSET_CHANGED" in message and "was changed from 2 to 1" in message


def test_partitions_whose_end_decreased_are_detected() -> None:
    """SPARK-26267"""
    assert went_back({A: 5, B: 3}, {A: 4, B: 3, C: 0}) == {A: (5, 4)}


def test_run_of_available_now_ends_at_its_initial_end_offsets() -> None:
    target = AvailableNowTarget({A: 5, B: 3})
    target.check({A: 5, B: 2}, {A: 9, B: 3, C: 1})


@pytest.mark.parametrize(
    ("end", "latest", "sentence"),
    [
        ({A: 5}, {A: 5, B: 3}, "should provide the same topic partitions"),
        ({A: 5, B: 3, C: 0}, {A: 5, B: 3, C: 0}, "should provide the same topic partitions"),
        ({A: 5}, {A: 5, B: 3}, "topic-partitions for pre-fetched offset: orders-0, orders-1, topic-partitions for end"),
        ({A: 6, B: 3}, {A: 6, B: 3}, "end offset should have lower or equal offset per each topic partition than pre"),
        (
            {A: 6, B: 3},
            {A: 6, B: 3},
            'pre-fetched offset: {"orders":{"0":5}}, end offset: {"orders":{"0":6}}.',
        ),
        ({A: 5, B: 3}, {A: 5}, "Some of partitions in Kafka topic(s) have been lost during running query with Trigger"),
        (
            {A: 5, B: 3},
            {A: 5},
            "topic-partitions for latest offset: orders-0, topic-partitions for end offset: orders-",
        ),
        ({A: 5, B: 3}, {A: 4, B: 3}, "Some of partitions in Kafka topic(s) report available offset which is less than"),
        ({A: 5, B: 3}, {A: 4, B: 3}, 'latest offset: {"orders":{"0":4}}, end offset: {"orders":{"0":5}}'),
    ],
)
def test_the_four_checks_of_available_now(
    end: dict[TopicPartition, int], latest: dict[TopicPartition, int], sentence: str
) -> None:
    """The messages are the connector's."""
    with pytest.raises(ChangedTargetError) as refused:
        AvailableNowTarget({A: 5, B: 3}).check(end, latest)
    assert sentence in str(refused.value)


def test_a_batch_that_an_earlier_run_planned_may_know_fewer_partitions() -> None:
    """Otherwise a topic that grew between the two would fail every later run."""
    target = AvailableNowTarget({A: 5, B: 3})
    target.check({A: 5}, {A: 5, B: 3}, replayed=True)
    with pytest.raises(ChangedTargetError):
        target.check({A: 5, C: 1}, {A: 5, B: 3}, replayed=True)
