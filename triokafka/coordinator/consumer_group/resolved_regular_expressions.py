"""Subscriptions by regular expression: the topics that a pattern matches, looked up again when topics change (KIP-848).

Patterns come from clients and are matched against every topic name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from triokafka.coordinator.consumer_group.consumer_group import ConsumerGroup
from triokafka.coordinator.consumer_group.member import MemberProfile
from triokafka.coordinator.consumer_group.records import PatternChange, PatternMatch
from triokafka.coordinator.group.topics_view import TopicFilter, TopicsView, any_topic
from triokafka.coordinator.regular_expressions import compile_regular_expression

_LEAST_MS: Final = 1_000
"""Minimum time between two lookups of a pattern, however often topics change."""


def matching_topics(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """Return the names that a pattern in RE2's syntax matches in full.

    Raises:
        InvalidRegularExpressionError: the pattern is invalid, or the broker does not have the package google-re2.
    """
    compiled = compile_regular_expression(pattern)
    return frozenset(name for name in names if compiled.fullmatch(name))


def look_up(
    group: ConsumerGroup,
    before: MemberProfile | None,
    profile: MemberProfile,
    topics: TopicsView,
    wall_ms: int,
    refresh_ms: int,
    may_describe: TopicFilter = any_topic,
) -> list[PatternChange]:
    """Return the changes of the group's patterns when a member heartbeats: lookups that are due, and unused patterns.

    A lookup is due for a new pattern, when topics may have changed, and after ``refresh_ms``, because the topics that
    the member may describe may have changed. ``before`` is the member's former profile.

    A pattern matches only topics that the member whose heartbeat triggers the lookup may describe.

    Raises:
        InvalidRegularExpressionError: see `matching_topics`.
    """
    changes: list[PatternChange] = []
    pattern = profile.pattern
    if pattern and _is_due(group, pattern, topics, wall_ms, refresh_ms):
        found = frozenset(filter(may_describe, matching_topics(pattern, topics.names())))
        known = group.patterns.get(pattern)
        if known is not None and known.topics == found:
            group.patterns_checked[pattern] = (topics.version, wall_ms)
        else:  # the lookup counts once its record is replayed
            changes.append(PatternChange(group.group_id, pattern, PatternMatch(found, topics.version, wall_ms)))
    if before is not None and before.pattern and before.pattern != pattern:
        changes += [
            PatternChange(group.group_id, unused, None)
            for unused in group.unused_patterns(without=[before], also=profile)
        ]
    return changes


def _is_due(group: ConsumerGroup, pattern: str, topics: TopicsView, wall_ms: int, refresh_ms: int) -> bool:
    known = group.patterns.get(pattern)
    if known is None:
        return True
    version, when_ms = max((known.version, known.timestamp_ms), group.patterns_checked.get(pattern, (-1, -1)))
    if version == topics.version:
        return wall_ms - when_ms >= refresh_ms
    return not 0 <= wall_ms - when_ms < min(refresh_ms, _LEAST_MS)
