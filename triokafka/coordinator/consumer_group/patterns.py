"""Topics by regular expression: which ones a pattern matches, looked up again as topics come and go (KIP-848).

Patterns come from clients and are matched against every topic there is; RE2 does so in linear time, whatever they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from triokafka.coordinator.consumer_group.changes import PatternChange, PatternMatch
from triokafka.coordinator.consumer_group.group import ConsumerGroup
from triokafka.coordinator.consumer_group.member import MemberProfile
from triokafka.coordinator.topics import TopicFilter, TopicsView, any_topic
from triokafka.errors import InvalidRegularExpressionError

_LEAST_MS: Final = 1_000
"""A pattern is looked up at most so often, however often topics change."""


def matching_topics(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """The names that a pattern in RE2's syntax matches as a whole.

    Raises:
        InvalidRegularExpressionError: it is no such pattern, or the broker has no library to match it with.
    """
    try:
        import re2
    except ImportError:
        raise InvalidRegularExpressionError(
            "this broker matches no regular expressions: the package google-re2 is not installed there"
        ) from None
    try:
        options = re2.Options()
        options.log_errors = False  # to standard error: that is not for clients to write to
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise InvalidRegularExpressionError(f"{pattern!r} is no regular expression in RE2's syntax: {error}") from None
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
    """What changes in the group's patterns as a member with the pattern ``before.pattern`` asks for another one, or is
    heard of when topics may have come or gone, or ``refresh_ms`` have passed: what it may describe may be other topics.

    A pattern matches no topics but those that the member may describe on whose heartbeat it is looked up.

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
        else:  # it counts as looked up once its record is there
            changes.append(PatternChange(group.group_id, pattern, PatternMatch(found, topics.version, wall_ms)))
    if before is not None and before.pattern and before.pattern != pattern:
        changes += unused(group, [profile, *(known for known in group.profiles.values() if known is not before)])
    return changes


def unused(group: ConsumerGroup, profiles: Collection[MemberProfile]) -> list[PatternChange]:
    """The removal of the patterns that none of the members uses."""
    used = {profile.pattern for profile in profiles}
    return [PatternChange(group.group_id, pattern, None) for pattern in sorted(group.patterns.keys() - used)]


def _is_due(group: ConsumerGroup, pattern: str, topics: TopicsView, wall_ms: int, refresh_ms: int) -> bool:
    known = group.patterns.get(pattern)
    if known is None:
        return True
    version, when_ms = max((known.version, known.timestamp_ms), group.patterns_checked.get(pattern, (-1, -1)))
    if version == topics.version:
        return wall_ms - when_ms >= refresh_ms
    return not 0 <= wall_ms - when_ms < min(refresh_ms, _LEAST_MS)
