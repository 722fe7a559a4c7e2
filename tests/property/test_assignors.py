"""The guarantees of every assignor, for any group: all partitions assigned once, evenly, and with few moves."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triokafka.assignors import (
    CooperativeStickyAssignor,
    MemberSubscription,
    assign_range,
    assign_round_robin,
    assign_sticky,
)
from triokafka.structs import TopicPartition

TOPICS = [f"t{number}" for number in range(5)]
RACKS = ["a", "b", "c"]


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


def check_assigned_once(members, partitions, assigned) -> None:  # type: ignore[no-untyped-def]
    assert set(assigned) == set(members)
    counts = Counter(partition for got in assigned.values() for partition in got)
    assert set(counts) == wanted(members, partitions)
    assert all(count == 1 for count in counts.values())
    for member, got in assigned.items():
        assert {partition.topic for partition in got} <= set(members[member].topics)


@pytest.mark.parametrize("assign", [assign_range, assign_round_robin])
@given(case=groups())
def test_every_partition_of_a_subscribed_topic_goes_to_exactly_one_subscriber(assign, case) -> None:  # type: ignore[no-untyped-def]
    members, partitions = case
    check_assigned_once(members, partitions, assign(members, partitions))


@given(case=histories())
def test_sticky_assigns_every_partition_exactly_once_whatever_the_owners_were(case) -> None:  # type: ignore[no-untyped-def]
    members, partitions, owners = case
    check_assigned_once(members, partitions, assign_sticky(members, partitions, owners))


@given(case=groups(equal=True))
def test_range_is_within_one_per_topic_and_the_rest_within_one_in_all(case) -> None:  # type: ignore[no-untyped-def]
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
    retained = sum(owners.get(partition) == member for member, got in assigned.items() for partition in got)
    # No even assignment retains more: each member retains at most its quota, and only some quotas are the larger one.
    low, extra = divmod(sum(counts), len(members))
    everything = wanted(members, partitions)
    had = Counter(owner for partition, owner in owners.items() if partition in everything and owner in members)
    over = sum(count > low for count in had.values())
    assert retained == sum(min(count, low) for count in had.values()) + min(over, extra)


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
def test_the_assignment_does_not_depend_on_the_order_of_members(case, seed) -> None:  # type: ignore[no-untyped-def]
    members, partitions, owners = case
    names, topics, claims = list(members), list(partitions), list(owners)
    for listing in (names, topics, claims):
        seed.shuffle(listing)
    shuffled = {n: members[n] for n in names}, {t: partitions[t] for t in topics}
    assert assign_range(*shuffled) == assign_range(members, partitions)
    assert assign_round_robin(*shuffled) == assign_round_robin(members, partitions)
    sticky = assign_sticky(*shuffled, {c: owners[c] for c in claims})
    assert sticky == assign_sticky(members, partitions, owners)


@st.composite
def groups_in_racks(draw: st.DrawFn):  # type: ignore[no-untyped-def]
    members, partitions, owners = draw(histories(equal=draw(st.booleans())))
    rack = st.sampled_from([None, *RACKS])
    members = {name: member._replace(rack_id=draw(rack)) for name, member in members.items()}
    replicas = st.frozensets(st.sampled_from(RACKS), max_size=2)
    racks = {t: draw(st.lists(replicas, min_size=count, max_size=count)) for t, count in partitions.items()}
    return members, partitions, owners, racks


def is_away(member: MemberSubscription, racks, partition: TopicPartition) -> bool:  # type: ignore[no-untyped-def]
    return member.rack_id is not None and member.rack_id not in racks[partition.topic][partition.partition]


def racks_matter(members, partitions, racks) -> bool:  # type: ignore[no-untyped-def]
    """KIP-881."""
    places = {racks[p.topic][p.partition] for p in wanted(members, partitions)}
    everywhere = frozenset[str]().union(*places)
    return any(member.rack_id in everywhere for member in members.values()) and places != {everywhere}


def worth(members, partitions, owners, racks, assigned) -> tuple[int, int, int]:  # type: ignore[no-untyped-def]
    """Return the sum of squares of the counts, the partitions in other racks, and the moved partitions: less
    is better.
    """
    everything = wanted(members, partitions)
    by_partition = {p: member for member, got in assigned.items() for p in got}
    away = sum(is_away(members[m], racks, p) for p, m in by_partition.items())
    moved = 0
    for partition, owner in owners.items():
        if partition in everything and owner in members and partition.topic in members[owner].topics:
            moved += by_partition[partition] != owner
    squares = sum(len(got) ** 2 for got in assigned.values())
    return squares, away if racks_matter(members, partitions, racks) else 0, moved


def best_worth(members, partitions, owners, racks) -> tuple[int, int, int]:  # type: ignore[no-untyped-def]
    """Return the minimum over all assignments: partition after partition along the cheapest chain of moves, which is
    optimal for costs that grow with a member's partitions (successive shortest paths).
    """
    everything = sorted(wanted(members, partitions))
    matter = racks_matter(members, partitions, racks)
    move, away = 1, len(everything) + 1
    step = (len(everything) + 1) * (away + move)

    def cost(partition: TopicPartition, name: str) -> int:
        member = members[name]
        owner = owners.get(partition)
        had = owner if owner in members and partition.topic in members[owner].topics else None
        return (had not in (None, name)) * move + (matter and is_away(member, racks, partition)) * away

    takers = {p: [name for name, member in members.items() if p.topic in member.topics] for p in everything}
    has: dict[str, set[TopicPartition]] = {name: set() for name in members}
    for new in everything:
        length = {name: cost(new, name) for name in takers[new]}
        came: dict[str, tuple[str, TopicPartition]] = {}
        changed = True
        while changed:
            changed = False
            for giver in list(length):
                for partition in has[giver]:
                    for taker in takers[partition]:
                        through = length[giver] - cost(partition, giver) + cost(partition, taker)
                        if through < length.get(taker, through + 1):
                            length[taker], came[taker], changed = through, (giver, partition), True
        last = min(length, key=lambda name: length[name] + step * (2 * len(has[name]) + 1))
        while last in came:
            giver, partition = came[last]
            has[giver].remove(partition)
            has[last].add(partition)
            last = giver
        has[last].add(new)
    return worth(members, partitions, owners, racks, {name: list(got) for name, got in has.items()})


@given(case=groups_in_racks())
def test_racks_do_not_change_how_many_partitions_each_member_gets(case) -> None:  # type: ignore[no-untyped-def]
    """Range gives each member as many partitions of each topic as without racks, and co-partitioned topics stay so
    (KIP-881).
    """
    members, partitions, owners, racks = case
    with_racks, without = assign_range(members, partitions, racks), assign_range(members, partitions)
    check_assigned_once(members, partitions, with_racks)
    check_assigned_once(members, partitions, assign_sticky(members, partitions, owners, racks))
    for topic in partitions:
        counts = [
            sorted(sum(p.topic == topic for p in got) for got in assignment.values())
            for assignment in (with_racks, without)
        ]
        assert counts[0] == counts[1]
    for topic, count in partitions.items():
        for other, other_count in partitions.items():
            consumers = [{m for m in members if name in members[m].topics} for name in (topic, other)]
            if count == other_count and consumers[0] == consumers[1]:
                for got in with_racks.values():
                    numbers = [{p.partition for p in got if p.topic == name} for name in (topic, other)]
                    assert numbers[0] == numbers[1]


@given(case=groups_in_racks())
@settings(max_examples=150)
def test_no_assignment_is_better_than_the_sticky_one(case) -> None:  # type: ignore[no-untyped-def]
    """Better means, in this order: more even, more partitions in the rack of their member, fewer moves; Kafka's
    assignor only approximates this (KIP-54, KIP-881).
    """
    members, partitions, owners, racks = case
    assigned = assign_sticky(members, partitions, owners, racks)
    assert worth(members, partitions, owners, racks, assigned) == best_worth(members, partitions, owners, racks)


@given(case=groups_in_racks(), seed=st.randoms(use_true_random=False))
def test_the_assignment_in_racks_does_not_depend_on_the_order_of_members(case, seed) -> None:  # type: ignore[no-untyped-def]
    members, partitions, owners, racks = case
    names, topics, claims = list(members), list(partitions), list(owners)
    for listing in (names, topics, claims):
        seed.shuffle(listing)
    shuffled = {n: members[n] for n in names}, {t: partitions[t] for t in topics}
    assert assign_range(*shuffled, racks) == assign_range(members, partitions, racks)
    sticky = assign_sticky(*shuffled, {c: owners[c] for c in claims}, racks)
    assert sticky == assign_sticky(members, partitions, owners, racks)


@given(case=groups_in_racks())
def test_cooperative_members_reach_the_assignment_in_the_second_rebalance(case) -> None:  # type: ignore[no-untyped-def]
    """The first revokes only moving partitions; the second assigns them, and a third changes nothing (KIP-429)."""
    members, partitions, owners, racks = case
    held = {name: [p for p, owner in owners.items() if owner == name] for name in members}
    results = []
    for generation in (1, 2, 3):
        asking = {
            name: member._replace(owned_partitions=held[name], generation=generation)
            for name, member in members.items()
        }
        answer = CooperativeStickyAssignor().assign(asking, partitions, racks)
        results.append({name: set(assignment.partitions) for name, assignment in answer.items()})
        for name, got in results[-1].items():
            assert all(p not in held[other] for other in members if other != name for p in got)
        held = {name: list(assignment.partitions) for name, assignment in answer.items()}
    check_assigned_once(members, partitions, {name: list(got) for name, got in results[1].items()})
    assert results[2] == results[1]
