"""The filters of ``triokafka get-offsets``, as in ``kafka-get-offsets``. Pure: no I/O.

A filter is a list of rules; a partition matches if one rule does. `of_patterns` reads ``--topic-partitions``,
`of_topic` reads ``--topic`` and ``--partitions``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    from triokafka.client.admin import PartitionDescription, TopicDescription

NOTHING_MATCHES: Final = "triokafka: no partition matches the filters. See triokafka topics list."
_RULE: Final = re.compile(r"([^:,]*)(?::(?:([0-9]*)|([0-9]*)-([0-9]*)))?")


class Rule(NamedTuple):
    """A pattern for whole topic names, and partitions: ``ids`` (None: all), at least ``lower``, below ``upper``."""

    topic: re.Pattern[str]
    ids: frozenset[int] | None = None
    lower: int = 0
    upper: int | None = None

    def matches(self, partition: TopicPartition) -> bool:
        """Whether the rule selects a partition."""
        if self.ids is not None and partition.partition not in self.ids:
            return False
        if partition.partition < self.lower or (self.upper is not None and partition.partition >= self.upper):
            return False
        return self.topic.fullmatch(partition.topic) is not None


class PartitionFilter(NamedTuple):
    """The rules; a partition matches if one of them does."""

    rules: tuple[Rule, ...]

    def matches(self, partition: TopicPartition) -> bool:
        """Whether one of the rules selects a partition."""
        return any(rule.matches(partition) for rule in self.rules)

    def select(self, described: Mapping[str, TopicDescription]) -> list[tuple[TopicPartition, PartitionDescription]]:
        """Return the partitions that the rules select, in the order of the topics."""
        return [
            (partition, one)
            for name, topic in described.items()
            for one in topic.partitions
            if self.matches(partition := TopicPartition(name, one.partition))
        ]

    def topics(self, names: Iterable[str]) -> list[str]:
        """Return the topics of which a rule may select a partition, sorted."""
        return sorted(name for name in names if any(rule.topic.fullmatch(name) for rule in self.rules))


def of_patterns(text: str) -> PartitionFilter:
    """Read ``topic1:1,topic2:0-3,topic3,topic4:5-,topic5:-3``; upper ends are exclusive, topics are patterns.

    Raises:
        UsageError: a part is invalid.
    """
    rules = []
    for part in text.split(","):
        found = _RULE.fullmatch(part)
        if found is None:
            raise click.UsageError(f"--topic-partitions: {part!r} is not TOPIC, TOPIC:NUMBER or TOPIC:FROM-TO.")
        topic, single, lower, upper = found.groups()
        pattern = _pattern("--topic-partitions", topic or ".*")
        if single:
            rules.append(Rule(pattern, frozenset({int(single)})))
        else:
            rules.append(Rule(pattern, lower=int(lower or 0), upper=int(upper) if upper else None))
    return PartitionFilter(tuple(rules))


def of_topic(topic: str | None, partitions: str | None) -> PartitionFilter:
    """Combine ``--topic``, a pattern or several of them separated by commas, and ``--partitions``, a list of ids.

    Raises:
        UsageError: one of them is invalid.
    """
    ids: frozenset[int] | None = None
    if partitions:
        texts = [part.strip() for part in partitions.split(",")]
        if not all(part.isdecimal() for part in texts):
            raise click.UsageError(f"--partitions takes partition ids such as 0,1,2, not {partitions!r}.")
        ids = frozenset(map(int, texts))
    parts = [part.strip() for part in (topic or ".*").split(",") if part.strip()]
    return PartitionFilter(tuple(Rule(_pattern("--topic", part), ids) for part in parts))


def _pattern(option: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise click.UsageError(f"{option}: {text!r} is not a regular expression: {error}.") from None
