"""Sessions, heartbeats and LeaveGroup."""

from __future__ import annotations

from tests.unit.coordinator.rig import Rig, code
from triokafka.coordinator.classic_group.state import GroupState
from triokafka.errors import FencedInstanceIdError, RebalanceInProgressError, UnknownMemberIdError

UNKNOWN = UnknownMemberIdError.code
REBALANCE = RebalanceInProgressError.code


def test_member_is_removed_when_its_session_expires() -> None:
    rig = Rig()
    (leader, follower), generation = rig.stable_group(session_ms=10_000)
    rig.pass_time(5)
    rig.heartbeat(leader, generation)
    rig.pass_time(4.999)
    assert rig.state() is GroupState.STABLE
    rig.pass_time(0.001)
    assert rig.state() is GroupState.PREPARING_REBALANCE
    assert list(rig.group().members) == [leader]
    assert code(rig.heartbeat(follower, generation)) == UNKNOWN


def test_heartbeat_at_the_session_deadline_extends_the_session() -> None:
    """A deadline can be moved until it fires."""
    rig = Rig()
    (leader, follower), generation = rig.stable_group(session_ms=10_000)
    rig.world.clock += 10
    assert [code(rig.heartbeat(member, generation)) for member in (leader, follower)] == [0, 0]
    rig.runtime.fire_due()
    assert (rig.state(), list(rig.group().members)) == (GroupState.STABLE, [leader, follower])


def test_heartbeats_extend_the_membership() -> None:
    rig = Rig()
    members, generation = rig.stable_group(session_ms=6_000)
    for _ in range(20):
        rig.pass_time(5)
        assert [code(rig.heartbeat(member, generation)) for member in members] == [0, 0]


def test_heartbeats_extend_the_membership_while_others_join() -> None:
    """KIP-62: heartbeats return REBALANCE_IN_PROGRESS and extend the session."""
    rig = Rig()
    (leader, follower), generation = rig.stable_group(session_ms=10_000, rebalance_ms=60_000)
    waiting = rig.join(leader, rebalance_ms=60_000)
    for _ in range(6):
        rig.pass_time(5)
        assert code(rig.heartbeat(follower, generation)) == REBALANCE
    rig.join(follower)
    assert waiting.value.generation_id == generation + 1


def test_commits_count_as_heartbeats() -> None:
    rig = Rig()
    (leader, follower), generation = rig.stable_group(session_ms=10_000)
    for _ in range(5):
        rig.pass_time(9)
        rig.heartbeat(leader, generation)
        assert code(rig.commit(follower, generation)) == 0
    assert rig.state() is GroupState.STABLE


def test_waiting_members_do_not_expire() -> None:
    """They wait for an answer from the coordinator."""
    rig = Rig()
    (leader, follower), generation = rig.stable_group(session_ms=10_000, rebalance_ms=60_000)
    parked_join = rig.join(leader, rebalance_ms=60_000)
    for _ in range(11):
        rig.pass_time(5)
        rig.heartbeat(follower, generation)
    assert not parked_join.is_set
    rig.join(follower, rebalance_ms=60_000)
    parked_sync = rig.sync(follower, generation + 1)
    for _ in range(11):
        rig.pass_time(5)
        rig.heartbeat(leader, generation + 1)
    assert not parked_sync.is_set
    rig.sync(leader, generation + 1, {})
    assert code(parked_sync) == 0


def test_answered_members_have_a_full_session() -> None:
    """Even when they were parked for longer than the session timeout."""
    rig = Rig()
    (leader, follower), generation = rig.joined_group(session_ms=10_000, rebalance_ms=60_000)
    rig.sync(follower, generation)
    for _ in range(3):
        rig.heartbeat(leader, generation)
        rig.pass_time(8)
    rig.sync(leader, generation, {})
    rig.pass_time(9.999)
    assert list(rig.group().members) == [leader, follower]


def test_new_member_parked_too_long_gets_unknown_member_id() -> None:
    """A dead client's member is removed that way; a live client joins again."""
    rig = Rig(new_member_join_timeout_ms=30_000)
    (leader, follower), generation = rig.stable_group(rebalance_ms=300_000)
    parked = rig.join(rebalance_ms=300_000)
    for _ in range(6):
        rig.pass_time(5)
        rig.heartbeat(leader, generation), rig.heartbeat(follower, generation)
    assert (code(parked), parked.value.member_id) == (UNKNOWN, "")


def test_leaving_makes_the_others_rejoin() -> None:
    rig = Rig()
    (leader, follower), generation = rig.stable_group()
    left = rig.leave(follower)
    assert [(m.member_id, m.error_code) for m in left.value] == [(follower, 0)]
    assert code(rig.heartbeat(leader, generation)) == REBALANCE
    assert rig.join(leader).value.generation_id == generation + 1


def test_leaving_can_complete_the_rebalance() -> None:
    rig = Rig()
    (leader, follower), generation = rig.stable_group()
    waiting = rig.join(leader)
    rig.leave(follower)
    assert waiting.value.generation_id == generation + 1


def test_member_that_leaves_while_it_waits_is_answered() -> None:
    rig = Rig()
    (leader, follower), generation = rig.stable_group()
    parked = rig.join(leader)
    rig.leave(leader)
    assert code(parked) == UNKNOWN
    assert rig.join(follower).value.generation_id == generation + 1


def test_follower_that_leaves_with_a_parked_sync_is_answered() -> None:
    rig = Rig()
    (_, follower), generation = rig.joined_group()
    parked = rig.sync(follower, generation)
    rig.leave(follower)
    assert code(parked) == UNKNOWN


def test_each_leaving_member_has_its_own_answer() -> None:
    """LeaveGroup v3: one unknown member does not affect the others."""
    rig = Rig()
    (leader, follower), _ = rig.stable_group()
    answers = rig.leave(leader, "stranger", follower).value
    assert [(m.member_id, m.error_code) for m in answers] == [(leader, 0), ("stranger", UNKNOWN), (follower, 0)]
    assert rig.state() is GroupState.EMPTY


def test_administrator_removes_static_members_by_instance() -> None:
    """KIP-345: without a member id, the instance id identifies the member."""
    rig = Rig()
    rig.join(instance_id="i-1"), rig.join(instance_id="i-2")
    rig.pass_time(9)
    answers = rig.leave(("", "i-1"), ("", "i-9")).value
    assert [(m.group_instance_id, m.error_code) for m in answers] == [("i-1", 0), ("i-9", UNKNOWN)]
    assert list(rig.group().static_members) == ["i-2"]


def test_leaving_with_a_stale_member_id_is_fenced() -> None:
    """KIP-345."""
    rig = Rig()
    rig.join(instance_id="i-1"), rig.join()
    rig.pass_time(9)
    assert code(rig.leave(("stale", "i-1"))) == FencedInstanceIdError.code


def test_leaving_an_unknown_group_is_refused() -> None:
    assert code(Rig().leave("somebody")) == UNKNOWN
