"""Worked examples for the assignors, checked against the results of Java's classes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from triokafka.assignors import (
    ENTRY_POINT_GROUP,
    NO_RACKS,
    Assignment,
    MemberSubscription,
    PartitionAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    assign_range,
    assign_round_robin,
    assign_sticky,
    in_member_order,
    resolve_assignors,
    settle_claims,
)
from triokafka.assignors.assignor import check_assignments
from triokafka.errors import ConfigurationError, IllegalStateError
from triokafka.structs import TopicPartition


def group(**subscriptions: str) -> dict[str, MemberSubscription]:
    """Build subscriptions from ``c0="t0 t1"``: member to topics."""
    return {member: MemberSubscription(topics.split()) for member, topics in subscriptions.items()}


def named(assigned: Mapping[str, list[TopicPartition]]) -> dict[str, str]:
    return {member: " ".join(f"{tp.topic}p{tp.partition}" for tp in sorted(got)) for member, got in assigned.items()}


def held(**partitions: str) -> dict[TopicPartition, str]:
    """Build previous owners from ``c0="t0p0 t0p1"``: member to partitions."""
    owners = {}
    for member, names in partitions.items():
        for name in names.split():
            topic, number = name.split("p")
            owners[TopicPartition(topic, int(number))] = member
    return owners


def test_range_gives_the_first_members_the_extra_partitions_of_each_topic() -> None:
    assigned = assign_range(group(c0="t0 t1", c1="t0 t1"), {"t0": 3, "t1": 3})
    assert named(assigned) == {"c0": "t0p0 t0p1 t1p0 t1p1", "c1": "t0p2 t1p2"}


def test_round_robin_continues_across_topics() -> None:
    assigned = assign_round_robin(group(c0="t0 t1", c1="t0 t1"), {"t0": 3, "t1": 3})
    assert named(assigned) == {"c0": "t0p0 t0p2 t1p1", "c1": "t0p1 t1p0 t1p2"}


def test_round_robin_skips_members_without_a_subscription() -> None:
    """Java's documented example of unequal subscriptions."""
    assigned = assign_round_robin(group(c0="t0", c1="t0 t1", c2="t0 t1 t2"), {"t0": 1, "t1": 2, "t2": 3})
    assert named(assigned) == {"c0": "t0p0", "c1": "t1p0", "c2": "t1p1 t2p0 t2p1 t2p2"}


def test_range_leaves_the_last_members_empty_when_partitions_run_out() -> None:
    assert named(assign_range(group(c2="t", c0="t", c1="t"), {"t": 2})) == {"c0": "tp0", "c1": "tp1", "c2": ""}


def test_topics_without_metadata_are_omitted_and_every_member_has_an_entry() -> None:
    for assign in (assign_range, assign_round_robin):
        assert assign(group(c0="gone", c1="t gone"), {"t": 1, "empty": 0}) == {"c0": [], "c1": [TopicPartition("t", 0)]}


def test_static_members_come_first_in_the_order_of_their_instance_ids() -> None:
    """Java's MemberInfo order."""
    members = {
        "a": MemberSubscription(["t"]),
        "b": MemberSubscription(["t"], group_instance_id="i2"),
        "c": MemberSubscription(["t"], group_instance_id="i1"),
    }
    assert in_member_order(members) == ["c", "b", "a"]


def test_members_are_in_javas_order() -> None:
    """By UTF-16 code unit, so that leaders in both languages agree."""
    members = {name: MemberSubscription(["t"]) for name in ("\uff5e", "\U0001f600", "b", "B")}
    assert in_member_order(members) == ["B", "b", "\U0001f600", "\uff5e"]


def test_sticky_without_history_assigns_like_round_robin() -> None:
    assigned = assign_sticky(
        group(c0="t0 t1 t2 t3", c1="t0 t1 t2 t3", c2="t0 t1 t2 t3"), dict.fromkeys(["t0", "t1", "t2", "t3"], 2), {}
    )
    assert named(assigned) == {"c0": "t0p0 t1p1 t3p0", "c1": "t0p1 t2p0 t3p1", "c2": "t1p0 t2p1"}


def test_sticky_moves_only_the_partitions_of_the_departed_member() -> None:
    """Java's first documented example: c1 leaves, c0 and c2 keep everything."""
    owners = held(c0="t0p0 t1p1 t3p0", c1="t0p1 t2p0 t3p1", c2="t1p0 t2p1")
    assigned = assign_sticky(
        group(c0="t0 t1 t2 t3", c2="t0 t1 t2 t3"), dict.fromkeys(["t0", "t1", "t2", "t3"], 2), owners
    )
    for partition, owner in owners.items():
        if owner != "c1":
            assert partition in assigned[owner]
    assert sorted(map(len, assigned.values())) == [4, 4]


def test_sticky_with_unequal_subscriptions_is_more_even_than_round_robin() -> None:
    """Java's second documented example: c0 leaves; c1 keeps its partitions of two topics."""
    owners = held(c0="t0p0", c1="t1p0 t1p1", c2="t2p0 t2p1 t2p2")
    assigned = assign_sticky(group(c1="t0 t1", c2="t0 t1 t2"), {"t0": 1, "t1": 2, "t2": 3}, owners)
    assert named(assigned) == {"c1": "t0p0 t1p0 t1p1", "c2": "t2p0 t2p1 t2p2"}


def test_a_new_member_takes_its_share_and_nothing_else_moves() -> None:
    before = assign_sticky(group(a="t", b="t"), {"t": 7}, {})
    owners = {partition: member for member, got in before.items() for partition in got}
    after = assign_sticky(group(a="t", b="t", c="t"), {"t": 7}, owners)
    assert sorted(map(len, after.values())) == [2, 2, 3]
    assert len([1 for member in "ab" for partition in after[member] if owners[partition] == member]) == 5


def test_the_newer_generation_owns_and_equal_claims_cancel() -> None:
    t0, t1 = TopicPartition("t", 0), TopicPartition("t", 1)
    assert settle_claims({"old": (3, [t0, t1]), "new": (4, [t0])}) == {t0: "new", t1: "old"}
    assert settle_claims({"a": (3, [t0]), "b": (3, [t0, t1])}) == {t1: "b"}


def test_strategy_is_a_name_a_class_or_an_object() -> None:

    class Everything(PartitionAssignor):
        name = "everything"

        def assign(self, members, partitions, racks=NO_RACKS):  # type: ignore[no-untyped-def]
            return {member: Assignment() for member in members}

    mine = Everything()
    found = resolve_assignors(["range", RoundRobinAssignor, mine])
    assert [assignor.name for assignor in found] == ["range", "roundrobin", "everything"]
    assert found[2] is mine
    assert isinstance(resolve_assignors("org.apache.kafka.clients.consumer.RangeAssignor")[0], RangeAssignor)


def test_an_unknown_strategy_names_the_nearest_known_one() -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'roundrobin'"):
        resolve_assignors("round-robin")
    with pytest.raises(ConfigurationError, match="at least one"):
        resolve_assignors([])
    with pytest.raises(ConfigurationError, match="same name"):
        resolve_assignors(["range", "range"])


def test_a_strategy_is_an_entry_point_of_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry point names an assignor class, or an object that the package has created."""
    install(tmp_path, monkeypatch, "weighted = weighing:Weighted\nshared = weighing:ready\n")
    by_class, by_object = resolve_assignors(["weighted", "shared"])
    assert [by_class.name, by_object.name] == ["weighted", "ready-made"]
    assert by_class.assign({"m": MemberSubscription(["t"])}, {"t": 1}) == {"m": Assignment([TopicPartition("t", 0)])}
    (of_another_consumer,) = resolve_assignors("shared")
    assert by_object is not of_another_consumer, "each consumer has its own instance, which may store its assignment"


def test_invalid_entry_point_is_a_configuration_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(
        tmp_path,
        monkeypatch,
        "weighted = weighing:Weighted\nnumber = weighing:NUMBER\nlost = nowhere:Assignor\nlocked = weighing:locked\n",
    )
    with pytest.raises(ConfigurationError, match=r"entry point 'number' in triokafka\.assignors is 7, not an assignor"):
        resolve_assignors("number")
    with pytest.raises(ConfigurationError, match=r"entry point 'lost' in triokafka\.assignors.*No module named"):
        resolve_assignors("lost")
    with pytest.raises(
        ConfigurationError, match=r"entry point 'locked' in .* cannot be copied for each consumer.*lock"
    ):
        resolve_assignors("locked")
    with pytest.raises(ConfigurationError, match=r"there is no assignor 'weihgted'; did you mean 'weighted'\?"):
        resolve_assignors("weihgted")


def install(directory: Path, monkeypatch: pytest.MonkeyPatch, entry_points: str) -> None:
    """A package with these entry points."""
    (directory / "weighing.py").write_text(
        "import threading\n"
        "from triokafka.assignors import RangeAssignor\n"
        "class Weighted(RangeAssignor):\n    name = 'weighted'\n"
        "class Ready(RangeAssignor):\n    name = 'ready-made'\n"
        "ready, locked, NUMBER = Ready(), Ready(), 7\n"
        "locked.lock = threading.Lock()\n"
    )
    about = directory / "weighing-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: weighing\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\n{entry_points}")
    monkeypatch.syspath_prepend(str(directory))


def test_range_in_racks_prefers_partitions_with_a_replica_in_the_members_rack() -> None:
    """KIP-881: counts differ by at most one; a topic with replicas in every rack is assigned as without racks."""
    a, b = frozenset("a"), frozenset("b")
    members = {"c0": MemberSubscription(["t"], rack_id="a"), "c1": MemberSubscription(["t"], rack_id="b")}
    assert named(assign_range(members, {"t": 4}, {"t": [b, a, b, a]})) == {"c0": "tp1 tp3", "c1": "tp0 tp2"}
    assert named(assign_range(members, {"t": 4}, {"t": [a | b] * 4})) == {"c0": "tp0 tp1", "c1": "tp2 tp3"}
    assert named(assign_range(members, {"t": 3}, {"t": [b, b, a]})) == {"c0": "tp2", "c1": "tp0 tp1"}


def test_range_in_racks_assigns_co_partitioned_topics_alike() -> None:
    """One member gets partition i of both, in a rack common to both if there is one; counts stay the same."""
    a, b = frozenset("a"), frozenset("b")
    members = {"c0": MemberSubscription(["t", "u"], rack_id="a"), "c1": MemberSubscription(["t", "u"], rack_id="b")}
    racks = {"t": [b, a | b], "u": [a | b, a]}
    assert named(assign_range(members, {"t": 2, "u": 2}, racks)) == {"c0": "tp1 up1", "c1": "tp0 up0"}
    assigned = assign_range(members, {"t": 4, "u": 4}, {"t": [a, a, a, b], "u": [a, a, a, b]})
    assert named(assigned) == {"c0": "tp0 tp1 up0 up1", "c1": "tp2 tp3 up2 up3"}


def test_sticky_prefers_even_counts_to_racks_and_racks_to_previous_owners() -> None:
    """KIP-881."""
    a, b = frozenset("a"), frozenset("b")
    members = {"c0": MemberSubscription(["t"], rack_id="a"), "c1": MemberSubscription(["t"], rack_id="b")}
    owners = held(c0="tp0 tp1", c1="tp2 tp3")
    assert named(assign_sticky(members, {"t": 4}, owners, {"t": [b, a, b, a]})) == {"c0": "tp1 tp3", "c1": "tp0 tp2"}
    assert named(assign_sticky(members, {"t": 4}, owners, {"t": [a, a, a, b]})) == {"c0": "tp0 tp1", "c1": "tp2 tp3"}
    assert named(assign_sticky(members, {"t": 4}, owners, {"t": [a | b] * 4})) == {"c0": "tp0 tp1", "c1": "tp2 tp3"}


def test_racks_do_not_matter_when_every_partition_is_in_every_rack() -> None:
    """As in Kafka; a member in a rack without any replica keeps its partitions."""
    a = frozenset("a")
    members = {"c0": MemberSubscription(["t"], rack_id="a"), "c1": MemberSubscription(["t"], rack_id="b")}
    assert named(assign_sticky(members, {"t": 1}, held(c1="tp0"), {"t": [a]})) == {"c0": "", "c1": "tp0"}


def test_assignment_at_the_search_limit_is_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The leader must not miss its group's deadlines; here the limit is zero."""
    monkeypatch.setattr("triokafka.assignors.exchange._PATIENCE", 0)
    members = group(c0="t u", c1="u v", c2="t v w")
    assigned = assign_sticky(members, {"t": 4, "u": 4, "v": 4, "w": 4}, held(c0="tp0", c1="up1 vp2"))
    assert sorted(p for got in assigned.values() for p in got) == [
        TopicPartition(topic, number) for topic in "tuvw" for number in range(4)
    ]
    assert max(map(len, assigned.values())) <= 7


@pytest.mark.parametrize(
    ("assigned", "cooperative", "wrong"),
    [
        ({"a": [0]}, False, r"returned no assignment for the members \['b'\]"),
        ({"a": [0], "b": [], "c": [1]}, False, r"returned assignments for \['c'\], which are not members"),
        ({"a": [0, 1], "b": [1]}, False, "assigned t-1 to 'a' and to 'b'"),
        ({"a": [], "b": [0]}, True, "is cooperative, but assigned t-0 to 'b' while 'a' still owns it"),
        ({"a": [], "b": [0]}, False, None),
        ({"a": [0], "b": [2]}, True, None),  # 2 is said to be held by both
        ({"a": [2, 0], "b": [1]}, True, None),
    ],
)
def test_invalid_assignment_of_an_assignor_is_rejected(
    assigned: dict[str, list[int]], cooperative: bool, wrong: str | None
) -> None:
    """Otherwise two members would read a partition, or none."""

    class Plugged(RangeAssignor):
        name = "plugged"

    Plugged.cooperative = cooperative
    members = {
        member: MemberSubscription(topics=["t"], owned_partitions=[TopicPartition("t", number) for number in held])
        for member, held in (("a", [0, 2]), ("b", [2]))
    }
    shares = {
        member: Assignment([TopicPartition("t", number) for number in numbers]) for member, numbers in assigned.items()
    }
    if wrong is None:
        check_assignments(Plugged(), members, shares)
    else:
        with pytest.raises(IllegalStateError, match=f"assignor 'plugged' {wrong}"):
            check_assignments(Plugged(), members, shares)
