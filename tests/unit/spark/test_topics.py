"""Which partitions a read is about (ConsumerStrategySuite; `spark/3.1`)."""

from __future__ import annotations

import pytest

from triokafka.errors import ConfigurationError
from triokafka.spark.topics import Assign, Subscribe, SubscribePattern, java_pattern
from triokafka.structs import TopicPartition

KNOWN = {"topic-1": [1, 0], "topic-2": [0], "other": [0, 1, 2], "__consumer_offsets": [0]}


def names(chosen: list[TopicPartition]) -> list[str]:
    return [str(one) for one in chosen]


def test_subscribe_takes_all_partitions_of_topics_that_are_there():
    strategy = Subscribe(("topic-2", "topic-1", "gone"))
    assert names(strategy.choose(KNOWN)) == ["topic-1-0", "topic-1-1", "topic-2-0"]
    assert strategy.topics == ("topic-2", "topic-1", "gone")


def test_assign_takes_those_partitions_that_are_there():
    strategy = Assign((TopicPartition("other", 1), TopicPartition("other", 9), TopicPartition("gone", 0)))
    assert names(strategy.choose(KNOWN)) == ["other-1"]
    assert strategy.topics == ("other", "gone")


def test_a_pattern_matches_whole_names_and_never_kafkas_own_topics():
    assert names(SubscribePattern("topic-.*").choose(KNOWN)) == ["topic-1-0", "topic-1-1", "topic-2-0"]
    assert names(SubscribePattern("topic").choose(KNOWN)) == []
    assert names(SubscribePattern(".*").choose(KNOWN)) == [
        "other-0", "other-1", "other-2", "topic-1-0", "topic-1-1", "topic-2-0",
    ]  # fmt: skip
    assert SubscribePattern(".*").topics is None


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        (r"\Qa.b\E-\d+", "a.b-12", "axb-12"),
        (r"\Qa.b", "a.b", "axb"),
        (r"t-\p{Digit}{2}", "t-12", "t-1x"),
        (r"t-\P{Digit}+", "t-ab", "t-1"),
        (r"[\p{Alpha}_]+", "a_b", "a-b"),
        (r"(?<env>dev|prod)-\k<env>", "dev-dev", "dev-prod"),
        (r"(?i)Orders", "ORDERS", "order"),
        (r"(?!tmp)\w+", "orders", "tmpx"),
        (r"(?<!x)orders", "orders", "order"),
        (r"a|b", "b", "ab"),
        (r"[]a]+", "]a", "b"),
        (r"orders(?>a*)+", "ordersaa", "order"),
        (r"a++b", "aab", "b"),
        (r"orders\z", "orders", "orders2"),
        (r"\w+", "abc", "ü"),
    ],
)
def test_patterns_are_javas(pattern: str, matching: str, other: str):
    compiled = java_pattern(pattern)
    assert compiled.fullmatch(matching)
    assert not compiled.fullmatch(other)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "missing"),
        ("*", "nothing to repeat"),
        ("[a-z&&[^b]]", "intersections of character classes"),
        ("[a[bc]]", "within character classes"),
        (r"\p{Greek}", r"\p{Greek} cannot be used here"),
        (r"[\P{Digit}]", "within a character class"),
    ],
)
def test_what_cannot_be_said_in_python_is_refused(pattern: str, why: str):
    with pytest.raises(ConfigurationError, match="'subscribePattern' is not a pattern that can be used") as refused:
        SubscribePattern(pattern)
    assert why in str(refused.value)
