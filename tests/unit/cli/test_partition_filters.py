"""Filters of partitions have the same meaning as in kafka-get-offsets."""

from __future__ import annotations

import click
import pytest

from triokafka.cli.partition_filters import PartitionFilter, of_patterns, of_topic
from triokafka.structs import TopicPartition

PARTITIONS = [TopicPartition(topic, number) for topic in ("orders", "orders2", "x") for number in range(6)]


def chosen(wanted: PartitionFilter) -> list[str]:
    return [str(one) for one in PARTITIONS if wanted.matches(one)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x:1", ["x-1"]),
        ("x:0-2", ["x-0", "x-1"]),
        ("x:4-", ["x-4", "x-5"]),
        ("x:-2", ["x-0", "x-1"]),
        (":3", ["orders-3", "orders2-3", "x-3"]),
        ("orders.:0,x:5", ["orders2-0", "x-5"]),
        ("x:", [f"x-{number}" for number in range(6)]),
        ("order", []),
    ],
)
def test_patterns_select_partitions(text: str, found: list[str]) -> None:
    assert chosen(of_patterns(text)) == found


def test_topic_is_a_pattern_for_the_whole_name() -> None:
    assert chosen(of_topic("orders", "0,5")) == ["orders-0", "orders-5"]
    assert chosen(of_topic("orders.*,x", "1")) == ["orders-1", "orders2-1", "x-1"]
    assert chosen(of_topic(None, None)) == [str(one) for one in PARTITIONS]


def test_topics_are_those_of_which_a_partition_may_match() -> None:
    assert of_patterns("orders:1,x").topics(["x", "orders2", "orders"]) == ["orders", "x"]


@pytest.mark.parametrize("text", ["x:y", "x:1-2-3", "[:1"])
def test_unreadable_patterns_are_usage_errors(text: str) -> None:
    with pytest.raises(click.UsageError, match="--topic-partitions"):
        of_patterns(text)


def test_unreadable_ids_are_usage_errors() -> None:
    with pytest.raises(click.UsageError, match="--partitions"):
        of_topic("x", "1,two")
