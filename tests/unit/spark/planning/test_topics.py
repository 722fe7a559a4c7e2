"""The partitions of a read (ConsumerStrategySuite)."""

from __future__ import annotations

import pytest

from triokafka.errors import ConfigurationError
from triokafka.spark.planning.topics import Assign, Subscribe, SubscribePattern, java_pattern
from triokafka.structs import TopicPartition

KNOWN = {"topic-1": [1, 0], "topic-2": [0], "other": [0, 1, 2], "__consumer_offsets": [0]}


def names(chosen: list[TopicPartition]) -> list[str]:
    return [str(one) for one in chosen]


def test_subscribe_uses_all_partitions_of_existing_topics() -> None:
    strategy = Subscribe(("topic-2", "topic-1", "gone"))
    assert names(strategy.choose(KNOWN)) == ["topic-1-0", "topic-1-1", "topic-2-0"]
    assert strategy.topics == ("topic-2", "topic-1", "gone")


def test_assign_uses_the_partitions_that_exist() -> None:
    strategy = Assign((TopicPartition("other", 1), TopicPartition("other", 9), TopicPartition("gone", 0)))
    assert names(strategy.choose(KNOWN)) == ["other-1"]
    assert strategy.topics == ("other", "gone")


def test_a_pattern_matches_whole_names_and_never_kafkas_own_topics() -> None:
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
        (r"[(?<x]orders", "<orders", "Porders"),
        (r"a|b", "b", "ab"),
        (r"[]a]+", "]a", "b"),
        (r"orders(?>a*)+", "ordersaa", "order"),
        (r"a++b", "aab", "b"),
        (r"orders\z", "orders", "orders2"),
        (r"\w+", "abc", "ü"),
        (r"\0101\07?-[\0102b]", "A-B", "\x081-B"),
        (r"\0477", "'7", "\x047"),
        (r"\p{Graph}\p{Print}", "a ", " a"),
        (r"a(?i:b)", "aB", "AB"),
    ],
)
def test_patterns_match_as_in_java(pattern: str, matching: str, other: str) -> None:
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
        (r"[\w-.]+", "bad character range"),
        (r"\p{L}", r"\p{L} cannot be used here; known are Lower, Upper"),
        (r"\pL", r"bad escape \p"),
        (r"\p{IsAlphabetic}", "cannot be used here"),
        (r"\p{javaLowerCase}", "cannot be used here"),
        (r"\p{Alpha", r"\p{ is not closed"),
        (r"\G", r"bad escape \G"),
        (r"\R", r"bad escape \R"),
        (r"\X", r"bad escape \X"),
        (r"\H", r"bad escape \H"),
        (r"\V", r"bad escape \V"),
        (r"\N", "missing {"),
        (r"\cA", r"bad escape \c"),
        (r"\x{41}", r"incomplete escape \x"),
        (r"\08", r"\08 cannot be used here"),
        (r"a\b{g}", r"\b{ cannot be used here"),
        (r"a(?i)b", "global flags not at the start"),
        (r"(?-i)a", "missing :"),
        (r"(?d)a", "unknown extension ?d"),
        (r"(?U)a", "unknown extension ?U"),
        (r"(?u)a", "ASCII and UNICODE flags are incompatible"),
        (r"(?<=a{1,3})b", "fixed-width"),
        (r"a{2}{3}", "multiple repeat"),
        (r"(a)\2", "invalid group reference"),
    ],
)
def test_java_patterns_without_a_python_equivalent_are_refused(pattern: str, why: str) -> None:
    """The documentation lists each of them."""
    with pytest.raises(ConfigurationError, match="'subscribePattern' is not a pattern that can be used") as refused:
        SubscribePattern(pattern)
    assert why in str(refused.value)
