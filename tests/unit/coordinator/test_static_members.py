"""Static members (KIP-345): they restart without a rebalance, and the old process is fenced."""

from __future__ import annotations

import pytest

from tests.unit.coordinator.rig import RANGE, Rig, code, subscription
from triokafka.coordinator.classic_group.state import GroupState
from triokafka.errors import (
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    NotLeaderForPartitionError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

FENCED = FencedInstanceIdError.code
BOTH = [RANGE, ("roundrobin", subscription("orders"))]


def static_group(rig: Rig, **arguments: object) -> tuple[list[str], int]:
    """Return a stable group of the instances i-1 (its leader) and i-2."""
    replies = [rig.join(instance_id=name, **arguments) for name in ("i-1", "i-2")]  # type: ignore[arg-type]
    rig.pass_time(9)
    members = [reply.value.member_id for reply in replies]
    rig.sync(members[1], 1)
    rig.sync(members[0], 1, {members[0]: b"one", members[1]: b"two"})
    assert rig.state() is GroupState.STABLE
    return members, 1


def test_static_follower_restarts_without_a_rebalance() -> None:
    rig = Rig()
    (leader, follower), generation = static_group(rig)
    back = rig.join(instance_id="i-2", version=5).value
    assert (back.error_code, back.generation_id, back.leader) == (0, generation, leader)
    assert back.member_id != follower
    assert rig.state() is GroupState.STABLE
    assert rig.sync(back.member_id, generation, instance_id="i-2").value.assignment == b"two"


def test_restart_survives_a_restart_of_the_coordinator() -> None:
    """The new member id is stored before the join is answered."""
    rig = Rig()
    _, generation = static_group(rig)
    back = rig.join(instance_id="i-2").value
    rig.restart()
    assert code(rig.heartbeat(back.member_id, generation, instance_id="i-2")) == 0


def test_restarted_static_leader_skips_the_assignment() -> None:
    """KIP-814, since version 9: it leads, and must not assign."""
    rig = Rig()
    static_group(rig)
    back = rig.join(instance_id="i-1", version=9).value
    assert (back.leader, back.skip_assignment, len(back.members)) == (back.member_id, True, 2)


def test_static_leader_without_skip_assignment_sees_its_old_id_as_leader() -> None:
    """Before version 9, the old id as leader keeps the client from assigning in a stable group."""
    rig = Rig()
    (leader, _), _ = static_group(rig)
    back = rig.join(instance_id="i-1", version=8).value
    assert (back.leader, back.skip_assignment, back.members) == (leader, False, [])
    assert rig.group().leader_id == back.member_id


@pytest.mark.parametrize("request_name", ["heartbeat", "sync", "commit", "join", "leave"])
def test_old_process_of_a_restarted_member_is_fenced(request_name: str) -> None:
    rig = Rig()
    (_, follower), generation = static_group(rig)
    rig.join(instance_id="i-2")
    ask = {
        "heartbeat": lambda: rig.heartbeat(follower, generation, instance_id="i-2"),
        "sync": lambda: rig.sync(follower, generation, instance_id="i-2"),
        "commit": lambda: rig.commit(follower, generation, instance_id="i-2"),
        "join": lambda: rig.join(follower, instance_id="i-2"),
        "leave": lambda: rig.leave((follower, "i-2")),
    }[request_name]
    assert code(ask()) == FENCED  # type: ignore[arg-type]


def test_old_process_without_its_instance_id_is_unknown() -> None:
    rig = Rig()
    (_, follower), generation = static_group(rig)
    rig.join(instance_id="i-2")
    assert code(rig.heartbeat(follower, generation)) == UnknownMemberIdError.code


def test_parked_requests_of_the_old_process_are_fenced_at_once() -> None:
    rig = Rig()
    (leader, follower), _ = static_group(rig)
    rig.join(leader, instance_id="i-1")
    parked = rig.join(follower, instance_id="i-2", protocols=[("range", b"changed")])
    assert parked.is_set  # both have rejoined, so the join phase is complete
    parked = rig.sync(follower, 2, instance_id="i-2")  # type: ignore[assignment]
    rig.join(instance_id="i-2")
    assert code(parked) == FENCED
    assert rig.state() is GroupState.PREPARING_REBALANCE


def test_restart_during_the_join_phase_takes_the_old_place() -> None:
    rig = Rig()
    (leader, follower), generation = static_group(rig)
    parked = rig.join(leader, instance_id="i-1")
    older = rig.join(instance_id="i-2")
    assert older.value.generation_id == parked.value.generation_id == generation + 1
    assert {m.group_instance_id for m in parked.value.members} == {"i-1", "i-2"}
    assert follower not in rig.group().members


def test_restart_during_the_sync_phase_starts_a_rebalance() -> None:
    """The leader assigns to the old member id, so the group must rebalance."""
    rig = Rig()
    (leader, _), generation = static_group(rig)
    rig.join(leader, instance_id="i-1")
    rig.join(instance_id="i-2")
    assert rig.state() is GroupState.COMPLETING_REBALANCE
    rig.join(instance_id="i-2")
    assert rig.state() is GroupState.PREPARING_REBALANCE
    assert code(rig.heartbeat(leader, generation + 1, instance_id="i-1")) == RebalanceInProgressError.code


def test_restart_with_other_protocols_rebalances_only_if_the_selection_changes() -> None:
    rig = Rig()
    static_group(rig, protocols=BOTH)
    back = rig.join(instance_id="i-2", protocols=[*BOTH, ("sticky", b"")])
    assert (code(back), rig.state()) == (0, GroupState.STABLE)
    parked = rig.join(instance_id="i-2", protocols=BOTH[1:])
    assert (code(parked), rig.state()) == (None, GroupState.PREPARING_REBALANCE)


def test_restarted_member_keeps_its_position_in_the_member_order() -> None:
    rig = Rig()
    (leader, _), _ = static_group(rig)
    back = rig.join(instance_id="i-1").value.member_id
    assert next(iter(rig.group().members)) == back
    assert leader not in rig.group().members


def test_failed_append_of_a_restart_keeps_the_old_member() -> None:
    rig = Rig()
    (_, follower), generation = static_group(rig)
    rig.log.fails_with = NotLeaderForPartitionError("moved")
    assert code(rig.join(instance_id="i-2", protocols=[RANGE, ("sticky", b"")])) == 16
    rig.log.fails_with = None
    assert code(rig.heartbeat(follower, generation, instance_id="i-2")) == 0
    assert rig.group().members[follower].protocols == (RANGE,)
    rig.pass_time(20)
    assert rig.group().members == {}


def test_static_member_survives_missed_rebalances_until_its_session_expires() -> None:
    rig = Rig()
    (leader, follower), generation = static_group(rig, session_ms=100_000, rebalance_ms=20_000)
    waiting = rig.join(leader, instance_id="i-1", session_ms=100_000, rebalance_ms=20_000)
    rig.pass_time(20)
    assert waiting.value.generation_id == generation + 1
    assert [m.group_instance_id for m in waiting.value.members] == ["i-1", "i-2"]
    assert follower in rig.group().members


def test_rebalance_without_rejoins_continues_while_static_members_live() -> None:
    rig = Rig()
    (leader, _follower), generation = static_group(rig, session_ms=50_000, rebalance_ms=20_000)
    rig.join(leader, instance_id="i-1", session_ms=50_000, rebalance_ms=20_000)
    rig.leave((leader, "i-1"))
    rig.pass_time(40)
    assert rig.state() is GroupState.PREPARING_REBALANCE
    rig.pass_time(40)
    assert (rig.state(), rig.group().generation) == (GroupState.EMPTY, generation + 1)


def test_full_group_accepts_its_own_instance() -> None:
    rig = Rig(group_max_size=2)
    static_group(rig)
    assert code(rig.join(instance_id="i-2")) == 0
    assert code(rig.join(instance_id="i-3")) == GroupMaxSizeReachedError.code


def test_empty_instance_id_does_not_exceed_group_max_size() -> None:
    rig = Rig(group_max_size=1)
    rig.join(instance_id="")
    rig.pass_time(9)
    assert code(rig.join()) == GroupMaxSizeReachedError.code


def test_unknown_member_with_an_unknown_instance_is_refused() -> None:
    rig = Rig()
    static_group(rig)
    assert code(rig.join("somebody", instance_id="i-9")) == UnknownMemberIdError.code
