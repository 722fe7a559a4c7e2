"""The voters of a quorum as a value."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tests.support.raft_invariants import majorities_overlap
from triokafka.broker_stub.raft.replica_key import ReplicaKey
from triokafka.broker_stub.raft.voter_set import Voter, VoterEndpoint, VoterSet
from triokafka.protocol.stored.control_records import VotersRecord
from triokafka.structs import Node

DIRECTORIES = [UUID(int=number) for number in range(1, 12)]


def _voter(node_id: int, directory: int = 0) -> Voter:
    key = ReplicaKey(node_id, DIRECTORIES[directory])
    return Voter(key, (VoterEndpoint("CONTROLLER", f"host{node_id}", 9093),), 0, 1)


def test_a_static_voter_admits_every_directory() -> None:
    voters = VoterSet.static([Node(1, "a", 1), Node(2, "b", 2)], "CONTROLLER")
    assert voters.is_voter(ReplicaKey(1, DIRECTORIES[0]))
    assert not voters.is_voter(ReplicaKey(3, DIRECTORIES[0]))


def test_a_dynamic_voter_admits_only_its_directory() -> None:
    voters = VoterSet([_voter(1)])
    assert voters.is_voter(ReplicaKey(1, DIRECTORIES[0]))
    assert not voters.is_voter(ReplicaKey(1, DIRECTORIES[1]))
    assert voters.is_only_voter(ReplicaKey(1, DIRECTORIES[0]))


def test_a_voter_id_is_added_once() -> None:
    voters = VoterSet([_voter(1)])
    both = voters.with_voter(_voter(2))
    assert both is not None
    assert both.ids == (1, 2)
    assert both.with_voter(_voter(2, directory=1)) is None


def test_the_last_voter_and_an_unknown_voter_cannot_be_removed() -> None:
    voters = VoterSet([_voter(1), _voter(2)])
    one = voters.without_voter(_voter(2).key)
    assert one is not None
    assert one.ids == (1,)
    assert one.without_voter(_voter(1).key) is None
    assert voters.without_voter(_voter(1, directory=1).key) is None


def test_a_voters_record_stores_the_set() -> None:
    voters = VoterSet([_voter(1), _voter(2)])
    data = voters.record().encode(0)
    assert VoterSet.of_record(VotersRecord.decode(data, 0)) == voters


@given(st.sets(st.integers(0, 9), min_size=1), st.sets(st.integers(0, 9), min_size=1))
def test_overlap_is_that_of_all_majorities(one: set[int], other: set[int]) -> None:
    from itertools import combinations

    first, second = VoterSet(map(_voter, sorted(one))), VoterSet(map(_voter, sorted(other)))
    expected = all(
        set(here) & set(there)
        for here in combinations(first.ids, first.majority)
        for there in combinations(second.ids, second.majority)
    )
    assert majorities_overlap(first, second) == expected


@given(st.sets(st.integers(0, 9), min_size=1, max_size=8))
def test_a_changed_set_overlaps_the_one_before(ids: set[int]) -> None:
    voters = VoterSet(map(_voter, sorted(ids)))
    more = voters.with_voter(_voter(10))
    assert more is not None
    assert majorities_overlap(voters, more)
    assert majorities_overlap(more, voters)
