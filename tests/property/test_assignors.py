"""What every assignor guarantees, for any group: all partitions dealt once, evenly, and with few moves."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triokafka.assignors import MemberSubscription, assign_range, assign_round_robin, assign_sticky
from triokafka.structs import TopicPartition

TOPICS = [f"t{number}" for number in range(5)]


@st.composite
def groups(draw: st.DrawFn, *, equal: bool = False) -> tuple[dict[str, MemberSubscription], dict[str, int]]:
    partitions = draw(st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9), max_size=5))
    names = draw(st.lists(st.sampled_from([f"m{number}" for number in range(8)]), min_size=1, max_size=8, unique=True))
    every = draw(st.sets(st.sampled_from(TOPICS), min_size=1))
    topics = {name: every if equal else draw(st.sets(st.sampled_from(TOPICS))) for name in names}
    return {name: MemberSubscription(sorted(topics[name])) for name in names}, partitions


@st.composite
def histories(draw: st.DrawFn, *, equal: bool = False):  # type: ignore[no-untyped-def]
    members, partitions = draw(groups(equal=equal))
    everything = [TopicPartition(topic, number) for topic, count in partitions.items() for number in range(count + 1)]
    owner = st.sampled_from([*members, "gone"])
    owners = draw(st.dictionaries(st.sampled_from(everything), owner)) if everything else {}
    return members, partitions, owners


def wanted(members: dict[str, MemberSubscription], partitions: dict[str, int]) -> set[TopicPartition]:
    subscribed = {topic for member in members.values() for topic in member.topics}
    return {TopicPartition(t, number) for t, count in partitions.items() if t in subscribed for number in range(count)}


def check_dealt_once(members, partitions, assigned) -> None:  # type: ignore[no-untyped-def]
    assert set(assigned) == set(members)
    dealt = Counter(partition for got in assigned.values() for partition in got)
    assert set(dealt) == wanted(members, partitions)
    assert all(count == 1 for count in dealt.values())
    for member, got in assigned.items():
        assert {partition.topic for partition in got} <= set(members[member].topics)


@pytest.mark.parametrize("assign", [assign_range, assign_round_robin])
@given(case=groups())
def test_every_partition_of_a_subscribed_topic_goes_to_exactly_one_subscriber(assign, case) -> None:  # type: ignore[no-untyped-def]
    """(`client/ASG-2`, `client/ASG-6`)"""
    members, partitions = case
    check_dealt_once(members, partitions, assign(members, partitions))


@given(case=histories())
def test_sticky_deals_every_partition_exactly_once_whatever_was_held(case) -> None:  # type: ignore[no-untyped-def]
    members, partitions, owners = case
    check_dealt_once(members, partitions, assign_sticky(members, partitions, owners))


@given(case=groups(equal=True))
def test_range_is_within_one_per_topic_and_the_rest_within_one_in_all(case) -> None:  # type: ignore[no-untyped-def]
    """(`client/ASG-7`, `client/ASG-8`)"""
    members, partitions = case
    for topic in partitions:
        counts = [sum(p.topic == topic for p in got) for got in assign_range(members, partitions).values()]
        assert max(counts) - min(counts) <= 1
    counts = [len(got) for got in assign_round_robin(members, partitions).values()]
    assert max(counts) - min(counts) <= 1


@given(case=histories(equal=True))
def test_sticky_with_equal_subscriptions_is_even_with_the_fewest_moves(case) -> None:  # type: ignore[no-untyped-def]
    members, partitions, owners = case
    assigned = assign_sticky(members, partitions, owners)
    counts = [len(got) for got in assigned.values()]
    assert max(counts) - min(counts) <= 1
    kept = sum(owners.get(partition) == member for member, got in assigned.items() for partition in got)
    # No even deal keeps more: each member keeps at most its quota, and only so many quotas are the larger one.
    low, extra = divmod(sum(counts), len(members))
    everything = wanted(members, partitions)
    had = Counter(owner for partition, owner in owners.items() if partition in everything and owner in members)
    over = sum(count > low for count in had.values())
    assert kept == sum(min(count, low) for count in had.values()) + min(over, extra)


@given(case=histories())
@settings(max_examples=200)
def test_sticky_leaves_no_chain_of_moves_that_would_be_more_even(case) -> None:  # type: ignore[no-untyped-def]
    members, partitions, owners = case
    assigned = assign_sticky(members, partitions, owners)
    counts = {member: len(got) for member, got in assigned.items()}
    reach = {m: {o for o in members if {p.topic for p in assigned[m]} & set(members[o].topics)} for m in members}
    for _ in members:
        reach = {m: found.union(*(reach[o] for o in found)) for m, found in reach.items()}
    for member, others in reach.items():
        assert all(counts[other] >= counts[member] - 1 for other in others)


@given(case=histories())
def test_sticky_applied_to_its_own_result_moves_nothing(case) -> None:  # type: ignore[no-untyped-def]
    members, partitions, owners = case
    first = assign_sticky(members, partitions, owners)
    again = assign_sticky(members, partitions, {p: member for member, got in first.items() for p in got})
    assert {m: set(got) for m, got in again.items()} == {m: set(got) for m, got in first.items()}


@given(case=histories(), seed=st.randoms(use_true_random=False))
def test_the_leader_does_not_matter(case, seed) -> None:  # type: ignore[no-untyped-def]
    """The order in which members are listed changes nothing (`client/ASG-10`)."""
    members, partitions, owners = case
    names, topics, claims = list(members), list(partitions), list(owners)
    for listing in (names, topics, claims):
        seed.shuffle(listing)
    shuffled = {n: members[n] for n in names}, {t: partitions[t] for t in topics}
    assert assign_range(*shuffled) == assign_range(members, partitions)
    assert assign_round_robin(*shuffled) == assign_round_robin(members, partitions)
    sticky = assign_sticky(*shuffled, {c: owners[c] for c in claims})
    assert sticky == assign_sticky(members, partitions, owners)
