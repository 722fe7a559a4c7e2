"""The counts of subscriptions equal a scan of all members."""

from __future__ import annotations

import random

import pytest

from triokafka.coordinator.consumer_group.member import MemberProfile
from triokafka.coordinator.consumer_group.records import PatternMatch
from triokafka.coordinator.consumer_group.subscription_counts import SubscriptionCounts

PATTERNS = {"o.*": PatternMatch(frozenset({"orders", "offers"}), 1, 0), "z.*": PatternMatch(frozenset(), 1, 0)}


def topics_of(profiles: list[MemberProfile]) -> set[str]:
    found: set[str] = set()
    for profile in profiles:
        found |= profile.topic_names
        if profile.pattern in PATTERNS:
            found |= PATTERNS[profile.pattern].topics
    return found


@pytest.mark.parametrize("seed", range(20))
def test_counts_equal_a_scan_of_all_members(seed: int) -> None:
    chance = random.Random(seed)
    counts = SubscriptionCounts()
    members: list[MemberProfile] = []

    def any_profile() -> MemberProfile:
        names = frozenset(chance.sample(["orders", "bills", "events"], chance.randrange(3)))
        return MemberProfile(
            client_id=str(chance.random()), topic_names=names, pattern=chance.choice(["", "o.*", "z.*"])
        )

    for _ in range(60):
        if members and chance.random() < 0.4:
            counts.remove(members.pop(chance.randrange(len(members))))
        else:
            members.append(any_profile())
            counts.add(members[-1])
        leaving = chance.sample(members, chance.randrange(min(3, len(members)) + 1))
        left = [profile for profile in members if not any(profile is one for one in leaving)]
        joining = any_profile()
        assert counts.topics(PATTERNS) == topics_of(members)
        assert counts.topics(PATTERNS, without=leaving, also=joining) == topics_of([*left, joining])
        assert counts.patterns(without=leaving) == {profile.pattern for profile in left} - {""}
