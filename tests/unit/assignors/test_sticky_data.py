"""User data of sticky members, byte for byte as Java writes it."""

from __future__ import annotations

from triokafka.assignors import Assignment, CooperativeStickyAssignor, MemberSubscription, StickyAssignor
from triokafka.structs import TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def test_sticky_user_data_is_javas_schema_version_one() -> None:
    """[topic string, [int32]] then generation int32, as in StickyAssignor.serializeTopicPartitionAssignment."""
    assignor = StickyAssignor()
    assert assignor.user_data(["t"]) is None
    assignor.on_assignment(Assignment([T0, T1, U0]), 7)
    assert assignor.user_data(["t"]) == (b"\0\0\0\2\0\1t\0\0\0\2\0\0\0\0\0\0\0\1\0\1u\0\0\0\1\0\0\0\0\0\0\0\7")


def test_sticky_reports_an_empty_assignment() -> None:
    """As in Java: its generation outdates the claims of other members."""
    assignor = StickyAssignor()
    assignor.on_assignment(Assignment(), 3)
    assert assignor.user_data(["t"]) == b"\0\0\0\0\0\0\0\3"


def test_sticky_reads_both_versions_and_ignores_garbage() -> None:
    version_0 = b"\0\0\0\1\0\1t\0\0\0\1\0\0\0\0"
    members = {
        "a": MemberSubscription(["t"]),
        "b": MemberSubscription(["t"], version_0),
        "c": MemberSubscription(["t"], b"\xff\xff"),
    }
    assigned = StickyAssignor().assign(members, {"t": 3})
    assert T0 in assigned["b"].partitions


def test_sticky_members_keep_their_partitions_over_a_rejoin() -> None:
    first, second = StickyAssignor(), StickyAssignor()
    assigned = first.assign({"a": MemberSubscription(["t"]), "b": MemberSubscription(["t"])}, {"t": 4})
    first.on_assignment(assigned["a"], 1)
    second.on_assignment(assigned["b"], 1)
    again = first.assign(
        {"z": MemberSubscription(["t"], second.user_data(["t"])), "y": MemberSubscription(["t"], first.user_data("t"))},
        {"t": 4},
    )
    assert set(again["z"].partitions) == set(assigned["b"].partitions)


def test_cooperative_user_data_is_the_generation() -> None:
    assignor = CooperativeStickyAssignor()
    assert assignor.user_data(["t"]) == b"\xff\xff\xff\xff"
    assignor.on_assignment(Assignment([T0]), 258)
    assert assignor.user_data(["t"]) == b"\0\0\1\2"


def test_cooperative_assigns_a_moving_partition_only_after_its_revocation() -> None:
    assignor = CooperativeStickyAssignor()
    owner = MemberSubscription(["t"], None, [T0, T1], None, 3)
    assigned = assignor.assign({"a": owner, "b": MemberSubscription(["t"])}, {"t": 2})
    assert (list(assigned["a"].partitions), list(assigned["b"].partitions)) == ([T0], [])
    assigned = assignor.assign({"a": owner._replace(owned_partitions=[T0]), "b": MemberSubscription(["t"])}, {"t": 2})
    assert (list(assigned["a"].partitions), list(assigned["b"].partitions)) == ([T0], [T1])


def test_cooperative_does_not_assign_a_partition_that_two_members_claim() -> None:
    claim = MemberSubscription(["t"], None, [T0], None, 3)
    assigned = CooperativeStickyAssignor().assign({"a": claim, "b": claim}, {"t": 1})
    assert not assigned["a"].partitions and not assigned["b"].partitions
