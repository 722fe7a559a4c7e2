from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triokafka.broker_stub.controller.placement import UsableBroker, alternate_racks, assign_replicas, place
from triokafka.errors import InvalidReplicationFactorError

FIVE = (0, 1, 2, 3, 4)
RACKS = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c"}


def test_without_racks_the_golden_table_holds() -> None:
    assert assign_replicas(FIVE, 10, 3, start_index=2, shift=1) == [
        (2, 4, 0),
        (3, 0, 1),
        (4, 1, 2),
        (0, 2, 3),
        (1, 3, 4),
        (2, 0, 1),
        (3, 1, 2),
        (4, 2, 3),
        (0, 3, 4),
        (1, 4, 0),
    ]


def test_with_racks_the_golden_table_holds() -> None:
    assert alternate_racks(RACKS) == [0, 2, 4, 1, 3]
    assert assign_replicas(FIVE, 10, 3, start_index=2, shift=1, racks=RACKS) == [
        (4, 2, 1),
        (1, 4, 3),
        (3, 1, 4),
        (0, 3, 4),
        (2, 0, 4),
        (4, 0, 2),
        (1, 2, 4),
        (3, 4, 1),
        (0, 3, 4),
        (2, 0, 4),
    ]


def test_after_a_round_over_the_racks_the_replicas_shift() -> None:
    racks = dict(enumerate(("1", "3", "3", "2", "2", "1")))
    assert assign_replicas(range(6), 7, 3, start_index=0, shift=0, racks=racks) == [
        (0, 3, 1),
        (3, 1, 5),
        (1, 5, 4),
        (5, 4, 2),
        (4, 2, 0),
        (2, 0, 3),
        (0, 4, 2),
    ]


def test_one_broker_holds_everything_of_factor_one() -> None:
    assert place([UsableBroker(9)], 3, 1, pick=lambda below: 0) == [(9,), (9,), (9,)]


@given(
    brokers=st.integers(1, 7),
    racks=st.integers(1, 4),
    partitions=st.integers(1, 40),
    factor=st.integers(1, 7),
    start=st.integers(0, 1000),
)
def test_placement_is_even_and_spreads_over_racks(
    brokers: int, racks: int, partitions: int, factor: int, start: int
) -> None:
    usable = [UsableBroker(i, f"rack{i % racks}") for i in range(brokers)]
    if factor > brokers:
        with pytest.raises(InvalidReplicationFactorError):
            place(usable, partitions, factor, pick=lambda below: start % below)
        return
    placed = place(usable, partitions, factor, pick=lambda below: start % below)
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders.get(i, 0) for i in range(brokers)) <= 1
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert len({usable[i].rack for i in replicas}) == min(factor, racks, brokers)


def test_growing_in_steps_places_like_creating_at_once() -> None:
    usable = [UsableBroker(i) for i in FIVE]
    at_once = place(usable, 12, 3, pick=lambda below: 0)
    first = place(usable, 5, 3, pick=lambda below: 0)
    rest = place(usable, 7, 3, pick=lambda below: 3, first_partition=5, first_replica=first[0][0])
    assert [*first, *rest] == at_once


def test_fenced_brokers_get_replicas_only_when_the_others_do_not_suffice_and_never_lead() -> None:
    usable = [UsableBroker(0, fenced=True), UsableBroker(1), UsableBroker(2)]
    for replicas in place(usable, 6, 2, pick=lambda below: 0):
        assert 0 not in replicas
    for replicas in place(usable, 6, 3, pick=lambda below: 0):
        assert set(replicas) == {0, 1, 2} and replicas[0] != 0


@pytest.mark.parametrize(
    ("brokers", "factor", "words"),
    [
        ([UsableBroker(1)], 0, "positive"),
        (
            [UsableBroker(1)],
            2,
            r"only 1 broker\(s\) are registered or some brokers have all their log directories cordoned",
        ),
        ([UsableBroker(1, fenced=True)], 1, "currently fenced"),
        ([], 1, "currently fenced"),
    ],
)
def test_impossible_replication_factors_say_why(brokers: list[UsableBroker], factor: int, words: str) -> None:
    with pytest.raises(InvalidReplicationFactorError, match=words):
        place(brokers, 1, factor, pick=lambda below: 0)


def test_brokers_without_a_rack_are_in_a_rack_of_their_own() -> None:
    mixed = [UsableBroker(0, "a"), UsableBroker(1, "a"), UsableBroker(2)]
    for replicas in place(mixed, 6, 2, pick=lambda below: 1):
        assert 2 in replicas


def test_fenced_broker_of_a_rack_precedes_a_second_replica_in_another_rack() -> None:
    usable = [UsableBroker(0, "a"), UsableBroker(1, "a"), UsableBroker(2, "b", fenced=True)]
    assert {replicas[1:] for replicas in place(usable, 6, 2, pick=lambda below: 0)} == {(2,)}
    more = [*usable, UsableBroker(3, "b")]
    assert not any(2 in replicas for replicas in place(more, 6, 2, pick=lambda below: 0))


@pytest.mark.parametrize(("racks", "brokers", "factor"), [(1, 5, 3), (3, 9, 3), (2, 6, 2), (3, 6, 2), (4, 8, 3)])
def test_partitions_of_one_leader_have_many_sets_of_followers(racks: int, brokers: int, factor: int) -> None:
    """When a broker is fenced, its partitions get leaders on many other brokers; every broker has as many replicas."""
    usable = [UsableBroker(i, f"rack{i % racks}" if racks > 1 else None) for i in range(brokers)]
    placed = place(usable, brokers * brokers * 4, factor, pick=lambda below: 0)
    for leader in range(brokers):
        seconds = Counter(replicas[1] for replicas in placed if replicas[0] == leader)
        elsewhere = [i for i in range(brokers) if i != leader and (racks == 1 or i % racks != leader % racks)]
        assert set(seconds) == set(elsewhere)
        assert max(seconds.values()) <= 2 * min(seconds.values())
    held = Counter(broker for replicas in placed for broker in replicas)
    assert max(held.values()) - min(held.values()) <= factor * brokers
