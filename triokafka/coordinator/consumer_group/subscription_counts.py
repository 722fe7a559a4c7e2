"""The subscriptions of a group's members, each with the number of members that have it.

Members of one group have few different subscriptions. A question about all of them therefore need not ask each member,
which would make the joins of many members quadratic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from triokafka.coordinator.consumer_group.member import MemberProfile
from triokafka.coordinator.consumer_group.records import PatternMatch


class _Subscription(NamedTuple):
    topic_names: frozenset[str]
    pattern: str

    @classmethod
    def of(cls, profile: MemberProfile) -> _Subscription:
        return cls(profile.topic_names, profile.pattern)


class SubscriptionCounts:
    """The number of members by subscription. `add` and `remove` keep it in line with the members."""

    def __init__(self) -> None:
        self._counts: dict[_Subscription, int] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SubscriptionCounts) and self._counts == other._counts

    def __repr__(self) -> str:
        counts = sorted((sorted(names), pattern, count) for (names, pattern), count in self._counts.items())
        return f"<SubscriptionCounts {counts}>"

    __hash__ = None  # type: ignore[assignment]  # it changes

    def add(self, profile: MemberProfile) -> None:
        """Count a member."""
        subscription = _Subscription.of(profile)
        self._counts[subscription] = self._counts.get(subscription, 0) + 1

    def remove(self, profile: MemberProfile) -> None:
        """Count a member no more that was added with this profile."""
        subscription = _Subscription.of(profile)
        count = self._counts[subscription] - 1
        if count:
            self._counts[subscription] = count
        else:
            del self._counts[subscription]

    def _with(self, without: Iterable[MemberProfile], also: MemberProfile | None) -> list[_Subscription]:
        left = dict.fromkeys(self._counts, 0)
        for profile in without:
            left[_Subscription.of(profile)] -= 1
        found = [subscription for subscription, by in left.items() if self._counts[subscription] + by > 0]
        return found if also is None else [*found, _Subscription.of(also)]

    def topics(
        self,
        patterns: Mapping[str, PatternMatch],
        *,
        without: Iterable[MemberProfile] = (),
        also: MemberProfile | None = None,
    ) -> set[str]:
        """Return the topics that members subscribe to.

        Args:
            patterns: the topics that each pattern matches.
            without: profiles of members that do not count.
            also: the profile of a member that counts in addition.
        """
        found: set[str] = set()
        for subscription in self._with(without, also):
            found |= subscription.topic_names
            match = patterns.get(subscription.pattern) if subscription.pattern else None
            if match is not None:
                found |= match.topics
        return found

    def patterns(self, *, without: Iterable[MemberProfile] = (), also: MemberProfile | None = None) -> set[str]:
        """Return the patterns that members subscribe with; the arguments are those of `topics`."""
        return {subscription.pattern for subscription in self._with(without, also) if subscription.pattern}
