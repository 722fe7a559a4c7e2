"""Rebalances: how long they wait, which members are removed, and the contents of the responses."""

from __future__ import annotations

import pytest

from tests.unit.coordinator.rig import RANGE, ROUND_ROBIN, Rig, code, subscription
from triokafka.coordinator.classic_group import rebalance
from triokafka.coordinator.classic_group.classic_group import ClassicGroup
from triokafka.coordinator.classic_group.state import PREDECESSORS, GroupState
from triokafka.errors import (
    GroupMaxSizeReachedError,
    IllegalStateError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

UNKNOWN = UnknownMemberIdError.code
REBALANCE = RebalanceInProgressError.code


@pytest.mark.parametrize("source", list(GroupState))
@pytest.mark.parametrize("target", list(GroupState))
def test_a_group_takes_legal_transitions_only(source: GroupState, target: GroupState) -> None:
    group = ClassicGroup("g", state=source)
    if source in PREDECESSORS[target]:
        group.transition_to(target, 7)
        assert (group.state, group.previous_state, group.state_timestamp_ms) == (target, source, 7)
    else:
        with pytest.raises(IllegalStateError, match="'g' cannot go from"):
            group.transition_to(target, 7)
        assert group.state is source


# --- the first rebalance ---


def test_first_rebalance_waits_for_the_initial_delay() -> None:
    """KIP-134."""
    rig = Rig(group_initial_rebalance_delay_ms=3_000)
    reply = rig.join()
    rig.pass_time(2.999)
    assert not reply.is_set
    rig.pass_time(0.001)
    assert (reply.value.error_code, reply.value.generation_id) == (0, 1)


def test_initial_delay_is_extended_while_members_arrive() -> None:
    """KIP-134: a delay in which a member arrived is followed by another."""
    rig = Rig(group_initial_rebalance_delay_ms=3_000)
    first = rig.join()
    rig.pass_time(2)
    second = rig.join()
    rig.pass_time(1)
    assert not first.is_set
    rig.pass_time(2)
    third = rig.join()
    rig.pass_time(3.999)
    assert not first.is_set
    rig.pass_time(0.001)
    assert [reply.value.generation_id for reply in (first, second, third)] == [1, 1, 1]


def test_initial_delay_never_exceeds_the_rebalance_timeout() -> None:
    """KIP-134: the rebalance ends even when members keep arriving."""
    rig = Rig(group_initial_rebalance_delay_ms=3_000)
    first = rig.join(rebalance_ms=10_000)
    waited = 0.0
    while not first.is_set:
        rig.join(rebalance_ms=10_000)
        rig.pass_time(1)
        waited += 1
        assert waited <= 10
    assert waited == 10


def test_first_rebalance_without_initial_delay_completes_at_once() -> None:
    rig = Rig(group_initial_rebalance_delay_ms=0)
    reply = rig.join()
    rig.pass_time(0)
    assert reply.value.generation_id == 1


# --- member ids ---


def test_new_member_gets_its_id_first_and_rejoins_with_it() -> None:
    """KIP-394: since version 4 a dynamic member must join with the id that it receives."""
    rig = Rig()
    asked = rig.join(version=4, client_id="app").value
    assert asked.error_code == MemberIdRequiredError.code
    assert asked.member_id.startswith("app-")
    assert asked.generation_id == -1
    assert not rig.group().members
    reply = rig.join(asked.member_id, version=4)
    rig.pass_time(6)
    assert (reply.value.error_code, reply.value.member_id) == (0, asked.member_id)


def test_pending_member_expires_after_the_session_timeout() -> None:
    rig = Rig()
    member_id = rig.join(version=4, session_ms=10_000).value.member_id
    rig.pass_time(10)
    assert code(rig.join(member_id, version=4)) == UNKNOWN


def test_rebalance_waits_for_a_pending_member() -> None:
    rig = Rig()
    (leader, follower), generation = rig.stable_group()
    promised = rig.join(version=4).value.member_id
    rig.join(leader)
    waiting = rig.join(follower)
    assert not waiting.is_set
    rig.join(promised, version=4)
    assert waiting.value.generation_id == generation + 1


def test_leaving_pending_member_completes_the_rebalance() -> None:
    rig = Rig()
    (leader, follower), generation = rig.stable_group()
    promised = rig.join(version=4).value.member_id
    rig.join(leader)
    waiting = rig.join(follower)
    assert code(rig.leave(promised)) == 0
    assert waiting.value.generation_id == generation + 1


def test_expired_pending_member_completes_the_rebalance() -> None:
    rig = Rig()
    (leader, follower), generation = rig.stable_group()
    rig.join(version=4, session_ms=6_000)
    rig.join(leader)
    waiting = rig.join(follower)
    rig.pass_time(6)
    assert waiting.value.generation_id == generation + 1


def test_member_id_starts_with_the_client_id_or_the_instance() -> None:
    rig = Rig(group_initial_rebalance_delay_ms=0)
    dynamic, static = rig.join(client_id="app"), rig.join(instance_id="i-1")
    rig.pass_time(1)
    assert dynamic.value.member_id.startswith("app-")
    assert static.value.member_id.startswith("i-1-")


def test_unknown_member_of_an_unknown_group_creates_nothing() -> None:
    rig = Rig()
    assert code(rig.join("somebody")) == UNKNOWN
    assert rig.shard.groups == {}
    assert rig.log.appends == 0


# --- answers ---


def test_only_the_leader_receives_the_member_list() -> None:
    rig = Rig()
    first, second = rig.join(), rig.join(protocols=[("range", subscription("bills"))])
    rig.pass_time(6)
    leader, follower = first.value, second.value
    assert leader.leader == leader.member_id == follower.leader
    assert [(m.member_id, m.metadata) for m in leader.members] == [
        (leader.member_id, subscription("orders")),
        (follower.member_id, subscription("bills")),
    ]
    assert follower.members == []
    assert leader.protocol_name == follower.protocol_name == "range"
    assert leader.protocol_type == "consumer"
    assert not leader.skip_assignment


def test_lost_join_answer_is_repeated_with_the_same_generation() -> None:
    """A member that rejoins unchanged did not receive its answer."""
    rig = Rig()
    (leader, follower), generation = rig.joined_group()
    again = rig.join(leader).value
    assert (again.error_code, again.generation_id, len(again.members)) == (0, generation, 2)
    again = rig.join(follower).value
    assert (again.error_code, again.generation_id, len(again.members)) == (0, generation, 0)


def test_unchanged_rejoin_of_a_follower_does_not_rebalance() -> None:
    rig = Rig()
    (_, follower), generation = rig.stable_group()
    again = rig.join(follower).value
    assert (again.error_code, again.generation_id, again.members) == (0, generation, [])
    assert rig.state() is GroupState.STABLE


def test_rejoin_of_the_leader_starts_a_rebalance() -> None:
    """A leader rejoins when a topic has changed."""
    rig = Rig()
    (leader, follower), generation = rig.stable_group()
    waiting = rig.join(leader)
    assert code(rig.heartbeat(follower, generation)) == REBALANCE
    rig.join(follower)
    assert waiting.value.generation_id == generation + 1


def test_second_join_of_a_parked_member_replaces_the_first() -> None:
    """The older request fails with REBALANCE_IN_PROGRESS, so that no request hangs."""
    rig = Rig()
    (leader, follower), generation = rig.stable_group()
    older = rig.join(leader)
    newer = rig.join(leader)
    assert code(older) == REBALANCE
    rig.join(follower)
    assert newer.value.generation_id == generation + 1


# --- protocols ---


def test_protocol_with_most_votes_among_the_common_ones_wins() -> None:
    rig = Rig()
    replies = [
        rig.join(protocols=[("sticky", b""), RANGE, ROUND_ROBIN]),
        rig.join(protocols=[ROUND_ROBIN, RANGE]),
        rig.join(protocols=[ROUND_ROBIN, RANGE]),
    ]
    rig.pass_time(9)
    assert [reply.value.protocol_name for reply in replies] == ["roundrobin"] * 3


def test_tied_vote_selects_the_protocol_voted_for_first() -> None:
    rig = Rig()
    replies = [rig.join(protocols=[ROUND_ROBIN, RANGE]), rig.join(protocols=[RANGE, ROUND_ROBIN])]
    rig.pass_time(6)
    assert [reply.value.protocol_name for reply in replies] == ["roundrobin"] * 2


def test_empty_group_accepts_a_new_protocol_type() -> None:
    """The first member of an empty group may have any protocol type."""
    rig = Rig()
    members, _ = rig.stable_group()
    rig.leave(*members)
    reply = rig.join(protocol_type="connect", protocols=[("default", b"")])
    rig.pass_time(6)
    assert (reply.value.error_code, reply.value.protocol_type) == (0, "connect")


def test_join_without_protocols_is_refused_by_an_empty_group_too() -> None:
    rig = Rig()
    assert code(rig.join(protocols=[])) == 23
    assert code(rig.join(protocol_type="")) == 23


# --- completion of a rebalance ---


def test_members_that_do_not_rejoin_in_time_are_removed() -> None:
    """At the rebalance timeout the rebalance completes with the members that rejoined."""
    rig = Rig()
    (leader, follower), generation = rig.stable_group(rebalance_ms=20_000, session_ms=30_000)
    waiting = rig.join(leader, rebalance_ms=20_000, session_ms=30_000)
    rig.pass_time(19.999)
    assert not waiting.is_set
    rig.pass_time(0.001)
    assert waiting.value.generation_id == generation + 1
    assert [m.member_id for m in waiting.value.members] == [leader]
    assert code(rig.heartbeat(follower, generation)) == UNKNOWN


def test_rebalance_deadline_does_not_move_when_members_come_and_go() -> None:
    """Events that would start a rebalance only check whether the current one is complete."""
    rig = Rig()
    members, generation = rig.stable_group(2, rebalance_ms=60_000, session_ms=1_800_000)
    waiting = rig.join(rebalance_ms=60_000, session_ms=1_800_000)
    deadline = rig.shard.timers.deadline(rebalance.join_timer(rig.group()))
    rig.pass_time(20)
    newcomer = rig.join(rebalance_ms=1_800_000)
    rig.join(members[0], protocols=[RANGE, ROUND_ROBIN])
    rig.leave(list(rig.group().members)[-1])
    assert (newcomer.is_set, waiting.is_set) == (True, False)
    assert rig.shard.timers.deadline(rebalance.join_timer(rig.group())) == deadline
    rig.pass_time(39.9)
    assert not waiting.is_set
    rig.pass_time(0.1)
    assert waiting.value.generation_id == generation + 1


def test_rebalance_timeout_is_the_largest_of_the_members() -> None:
    """KIP-62: the rebalance timeout, not the session timeout."""
    rig = Rig()
    first, second = rig.join(rebalance_ms=20_000), rig.join(rebalance_ms=50_000, session_ms=60_000)
    rig.pass_time(6)
    leader = first.value.member_id
    rig.sync(leader, 1, {}), rig.sync(second.value.member_id, 1)
    waiting = rig.join(leader, rebalance_ms=20_000)
    rig.pass_time(49.999)
    assert not waiting.is_set
    rig.pass_time(0.001)
    assert waiting.value.generation_id == 2


def test_leadership_passes_to_a_member_that_rejoined() -> None:
    rig = Rig()
    (leader, follower), generation = rig.stable_group(rebalance_ms=20_000, session_ms=30_000)
    waiting = rig.join(follower, protocols=[("range", b"other")], rebalance_ms=20_000, session_ms=30_000)
    rig.pass_time(20)
    assert waiting.value.leader == follower
    assert waiting.value.generation_id == generation + 1
    assert leader not in rig.group().members


def test_group_without_members_is_stored_as_empty() -> None:
    """The generation is incremented and stored."""
    rig = Rig()
    members, generation = rig.stable_group()
    assert code(rig.leave(*members)) == 0
    assert rig.state() is GroupState.EMPTY
    rig.restart()
    assert (rig.state(), rig.group().generation) == (GroupState.EMPTY, generation + 1)
    reply = rig.join()
    rig.pass_time(6)
    assert reply.value.generation_id == generation + 2


# --- syncing ---


def test_syncs_wait_for_the_leaders_assignment() -> None:
    """Members that the leader omitted get an empty assignment."""
    rig = Rig()
    (leader, second, third), generation = rig.joined_group(3)
    parked = [rig.sync(second, generation), rig.sync(third, generation)]
    assert [reply.is_set for reply in parked] == [False, False]
    assert rig.sync(leader, generation, {leader: b"L", second: b"S"}).value.assignment == b"L"
    assert [reply.value.assignment for reply in parked] == [b"S", b""]
    assert parked[0].value.protocol_name == "range"
    assert parked[0].value.protocol_type == "consumer"


def test_assignment_for_an_unknown_member_is_ignored() -> None:
    rig = Rig()
    (leader,), generation = rig.joined_group(1)
    assert code(rig.sync(leader, generation, {leader: b"L", "stranger": b"X"})) == 0
    assert list(rig.group().members) == [leader]


def test_followers_assignments_are_ignored() -> None:
    rig = Rig()
    (leader, follower), generation = rig.joined_group()
    parked = rig.sync(follower, generation, {follower: b"mine"})
    rig.sync(leader, generation, {follower: b"given"})
    assert parked.value.assignment == b"given"


def test_lost_sync_answer_is_repeated() -> None:
    rig = Rig()
    (_, follower), generation = rig.stable_group()
    assert rig.sync(follower, generation).value.assignment == follower.encode()


def test_sync_that_names_another_protocol_is_refused() -> None:
    """KIP-559."""
    rig = Rig()
    (leader, _), generation = rig.joined_group()
    assert code(rig.sync(leader, generation, protocol_name="roundrobin")) == 23
    assert code(rig.sync(leader, generation, protocol_type="connect")) == 23
    assert code(rig.sync(leader, generation, protocol_type="consumer", protocol_name="range")) == 0


def test_new_rebalance_fails_parked_syncs() -> None:
    rig = Rig()
    (_, follower), generation = rig.joined_group()
    parked = rig.sync(follower, generation)
    rig.join()
    assert code(parked) == REBALANCE


def test_members_that_never_sync_are_removed_after_the_rebalance_timeout() -> None:
    """A leader that never syncs does not block the group forever."""
    rig = Rig()
    (leader, follower), generation = rig.joined_group(rebalance_ms=20_000)
    parked = rig.sync(follower, generation)
    for _ in range(5):
        assert code(rig.heartbeat(leader, generation)) == 0
        rig.pass_time(4)
    assert code(parked) == REBALANCE
    assert code(rig.heartbeat(leader, generation)) == UNKNOWN
    again = rig.join(follower)
    assert (again.value.generation_id, again.value.leader) == (generation + 1, follower)


def test_member_that_never_syncs_is_removed_from_a_stable_group_too() -> None:
    rig = Rig()
    (leader, follower), generation = rig.joined_group(rebalance_ms=20_000)
    rig.sync(leader, generation, {})
    for _ in range(5):
        rig.heartbeat(leader, generation), rig.heartbeat(follower, generation)
        rig.pass_time(4)
    assert rig.state() is GroupState.PREPARING_REBALANCE
    assert list(rig.group().members) == [leader]


def test_second_sync_of_a_parked_member_replaces_the_first() -> None:
    rig = Rig()
    (leader, follower), generation = rig.joined_group()
    older, newer = rig.sync(follower, generation), rig.sync(follower, generation)
    assert code(older) == REBALANCE
    rig.sync(leader, generation, {follower: b"F"})
    assert newer.value.assignment == b"F"


# --- group size ---


def test_full_group_refuses_new_members_but_not_its_own() -> None:
    """``group.max.size``."""
    rig = Rig(group_max_size=2)
    (leader, follower), generation = rig.stable_group(2)
    refused = rig.join().value
    assert (refused.error_code, refused.member_id) == (GroupMaxSizeReachedError.code, "")
    assert rig.state() is GroupState.STABLE
    rig.join(leader), rig.join(follower)
    assert rig.group().generation == generation + 1


def test_full_rebalance_refuses_late_pending_members() -> None:
    """The number of pending members is not limited by the group size; the first to join get the places."""
    rig = Rig(group_max_size=2)
    promised = [rig.join(version=4).value.member_id for _ in range(3)]
    replies = [rig.join(member_id, version=4) for member_id in promised]
    rig.pass_time(9)
    assert [code(reply) for reply in replies] == [0, 0, GroupMaxSizeReachedError.code]


def test_oldest_pending_member_beyond_the_limit_is_evicted() -> None:
    """``group_max_promised_members``: the evicted client joins again; the rebalance continues with the others."""
    rig = Rig(group_max_promised_members=2)
    promised = [rig.join(version=4).value.member_id for _ in range(3)]
    assert list(rig.group().pending_members) == promised[1:]
    replies = [rig.join(member_id, version=4) for member_id in promised]
    rig.pass_time(9)
    assert [code(reply) for reply in replies] == [UnknownMemberIdError.code, 0, 0]
    assert len(rig.shard.timers) == 4  # two sessions, the sync deadline, and the expiry scan


def test_loaded_group_above_group_max_size_rebalances() -> None:
    rig = Rig()
    members, generation = rig.stable_group(3)
    object.__setattr__(rig.config, "group_max_size", 2)
    rig.restart()
    assert rig.state() is GroupState.PREPARING_REBALANCE
    replies = [rig.join(member) for member in members]
    assert code(replies[2]) == GroupMaxSizeReachedError.code
    rig.pass_time(60)
    assert [reply.value.generation_id for reply in replies[:2]] == [generation + 1] * 2


def test_member_that_rejoins_a_full_rebalance_too_late_is_removed() -> None:
    """It gets GROUP_MAX_SIZE_REACHED, and the rebalance does not wait for it."""
    rig = Rig(group_max_size=2, group_initial_rebalance_delay_ms=0)
    (leader, follower), _ = rig.stable_group(2)
    rejoins = rig.join(leader)
    newcomer = rig.join()
    assert not rejoins.is_set
    late = rig.join(follower)
    assert code(late) == GroupMaxSizeReachedError.code
    assert follower not in rig.group().members
    assert [code(reply) for reply in (rejoins, newcomer)] == [0, 0]
