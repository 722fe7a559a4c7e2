"""Rebalance rounds: how long they wait, who is dropped, and what everybody is told."""

from __future__ import annotations

import pytest

from tests.unit.coordinator.rig import RANGE, ROUND_ROBIN, Rig, code, subscription
from triokafka.coordinator.group import rounds
from triokafka.coordinator.group.classic import ClassicGroup
from triokafka.coordinator.group.state import PREDECESSORS, GroupState
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


# --- the first round ---


def test_first_round_waits_for_the_initial_delay_although_everybody_is_there() -> None:
    """KIP-134."""
    rig = Rig(group_initial_rebalance_delay_ms=3_000)
    reply = rig.join()
    rig.pass_time(2.999)
    assert not reply.is_set
    rig.pass_time(0.001)
    assert (reply.value.error_code, reply.value.generation_id) == (0, 1)


def test_initial_delay_is_extended_while_members_arrive() -> None:
    """KIP-134: each wait in which somebody arrived is followed by another."""
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
    """KIP-134: with members arriving all the time the round still ends."""
    rig = Rig(group_initial_rebalance_delay_ms=3_000)
    first = rig.join(rebalance_ms=10_000)
    waited = 0.0
    while not first.is_set:
        rig.join(rebalance_ms=10_000)
        rig.pass_time(1)
        waited += 1
        assert waited <= 10
    assert waited == 10


def test_without_initial_delay_the_first_round_is_over_at_once() -> None:
    rig = Rig(group_initial_rebalance_delay_ms=0)
    reply = rig.join()
    rig.pass_time(0)
    assert reply.value.generation_id == 1


# --- member ids ---


def test_new_member_first_gets_its_id_and_comes_back_with_it() -> None:
    """KIP-394: from version 4 a dynamic member is asked to join with the id that it is given."""
    rig = Rig()
    asked = rig.join(version=4, client_id="app").value
    assert asked.error_code == MemberIdRequiredError.code
    assert asked.member_id.startswith("app-")
    assert asked.generation_id == -1
    assert not rig.group().members
    reply = rig.join(asked.member_id, version=4)
    rig.pass_time(6)
    assert (reply.value.error_code, reply.value.member_id) == (0, asked.member_id)


def test_promised_id_is_forgotten_after_the_session_timeout() -> None:
    rig = Rig()
    member_id = rig.join(version=4, session_ms=10_000).value.member_id
    rig.pass_time(10)
    assert code(rig.join(member_id, version=4)) == UNKNOWN


def test_round_waits_for_a_promised_member_until_it_joins() -> None:
    rig = Rig()
    (leader, follower), generation = rig.stable_group()
    promised = rig.join(version=4).value.member_id
    rig.join(leader)
    waiting = rig.join(follower)
    assert not waiting.is_set
    rig.join(promised, version=4)
    assert waiting.value.generation_id == generation + 1


def test_promised_member_that_leaves_lets_the_round_go_on() -> None:
    rig = Rig()
    (leader, follower), generation = rig.stable_group()
    promised = rig.join(version=4).value.member_id
    rig.join(leader)
    waiting = rig.join(follower)
    assert code(rig.leave(promised)) == 0
    assert waiting.value.generation_id == generation + 1


def test_promised_member_that_never_comes_lets_the_round_go_on() -> None:
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


def test_only_the_leader_is_told_about_the_members() -> None:
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
    """A member that joins again unchanged did not get its answer."""
    rig = Rig()
    (leader, follower), generation = rig.joined_group()
    again = rig.join(leader).value
    assert (again.error_code, again.generation_id, len(again.members)) == (0, generation, 2)
    again = rig.join(follower).value
    assert (again.error_code, again.generation_id, len(again.members)) == (0, generation, 0)


def test_follower_that_rejoins_a_stable_group_unchanged_disturbs_nobody() -> None:
    rig = Rig()
    (_, follower), generation = rig.stable_group()
    again = rig.join(follower).value
    assert (again.error_code, again.generation_id, again.members) == (0, generation, [])
    assert rig.state() is GroupState.STABLE


def test_leader_that_rejoins_forces_a_new_assignment() -> None:
    """That is how a changed topic leads to a new assignment."""
    rig = Rig()
    (leader, follower), generation = rig.stable_group()
    waiting = rig.join(leader)
    assert code(rig.heartbeat(follower, generation)) == REBALANCE
    rig.join(follower)
    assert waiting.value.generation_id == generation + 1


def test_second_join_of_a_parked_member_replaces_the_first() -> None:
    """The older request is sent back, so nobody hangs."""
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


def test_equal_votes_go_to_the_protocol_that_was_voted_for_first() -> None:
    rig = Rig()
    replies = [rig.join(protocols=[ROUND_ROBIN, RANGE]), rig.join(protocols=[RANGE, ROUND_ROBIN])]
    rig.pass_time(6)
    assert [reply.value.protocol_name for reply in replies] == ["roundrobin"] * 2


def test_empty_group_takes_a_new_protocol_type() -> None:
    """The first member of an empty group always fits."""
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


# --- the end of a round ---


def test_members_that_do_not_rejoin_in_time_are_out() -> None:
    """At the rebalance timeout those who are there are enough."""
    rig = Rig()
    (leader, follower), generation = rig.stable_group(rebalance_ms=20_000, session_ms=30_000)
    waiting = rig.join(leader, rebalance_ms=20_000, session_ms=30_000)
    rig.pass_time(19.999)
    assert not waiting.is_set
    rig.pass_time(0.001)
    assert waiting.value.generation_id == generation + 1
    assert [m.member_id for m in waiting.value.members] == [leader]
    assert code(rig.heartbeat(follower, generation)) == UNKNOWN


def test_round_has_one_deadline_whoever_comes_and_goes_meanwhile() -> None:
    """What would start a round only looks whether it completes the one in progress."""
    rig = Rig()
    members, generation = rig.stable_group(2, rebalance_ms=60_000, session_ms=1_800_000)
    waiting = rig.join(rebalance_ms=60_000, session_ms=1_800_000)
    deadline = rig.shard.timers.deadline(rounds.join_timer(rig.group()))
    rig.pass_time(20)
    newcomer = rig.join(rebalance_ms=1_800_000)
    rig.join(members[0], protocols=[RANGE, ROUND_ROBIN])
    rig.leave(list(rig.group().members)[-1])
    assert (newcomer.is_set, waiting.is_set) == (True, False)
    assert rig.shard.timers.deadline(rounds.join_timer(rig.group())) == deadline
    rig.pass_time(39.9)
    assert not waiting.is_set
    rig.pass_time(0.1)
    assert waiting.value.generation_id == generation + 1


def test_round_takes_as_long_as_its_slowest_member_asks_for() -> None:
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


def test_leadership_passes_to_somebody_who_rejoined() -> None:
    rig = Rig()
    (leader, follower), generation = rig.stable_group(rebalance_ms=20_000, session_ms=30_000)
    waiting = rig.join(follower, protocols=[("range", b"other")], rebalance_ms=20_000, session_ms=30_000)
    rig.pass_time(20)
    assert waiting.value.leader == follower
    assert waiting.value.generation_id == generation + 1
    assert leader not in rig.group().members


def test_group_whose_last_member_goes_is_empty_and_stored_as_such() -> None:
    """The generation is counted up and kept."""
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


def test_syncs_wait_for_the_leader_and_get_their_part() -> None:
    """Members that the leader left out get an empty assignment."""
    rig = Rig()
    (leader, second, third), generation = rig.joined_group(3)
    parked = [rig.sync(second, generation), rig.sync(third, generation)]
    assert [reply.is_set for reply in parked] == [False, False]
    assert rig.sync(leader, generation, {leader: b"L", second: b"S"}).value.assignment == b"L"
    assert [reply.value.assignment for reply in parked] == [b"S", b""]
    assert parked[0].value.protocol_name == "range"
    assert parked[0].value.protocol_type == "consumer"


def test_assignment_of_a_stranger_is_ignored() -> None:
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


def test_new_round_sends_parked_syncs_back_to_join() -> None:
    rig = Rig()
    (_, follower), generation = rig.joined_group()
    parked = rig.sync(follower, generation)
    rig.join()
    assert code(parked) == REBALANCE


def test_members_that_never_sync_are_removed_after_the_rebalance_timeout() -> None:
    """Pending syncs expire: a leader that never syncs does not stall the group for ever."""
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


def test_full_round_refuses_whom_it_promised_a_place() -> None:
    """Ids are promised freely; the places go to those who come back first."""
    rig = Rig(group_max_size=2)
    promised = [rig.join(version=4).value.member_id for _ in range(3)]
    replies = [rig.join(member_id, version=4) for member_id in promised]
    rig.pass_time(9)
    assert [code(reply) for reply in replies] == [0, 0, GroupMaxSizeReachedError.code]


def test_oldest_of_too_many_promised_ids_is_forgotten() -> None:
    """``group_max_promised_members``: whoever it was promised to asks again; the round goes on with the others."""
    rig = Rig(group_max_promised_members=2)
    promised = [rig.join(version=4).value.member_id for _ in range(3)]
    assert list(rig.group().pending_members) == promised[1:]
    replies = [rig.join(member_id, version=4) for member_id in promised]
    rig.pass_time(9)
    assert [code(reply) for reply in replies] == [UnknownMemberIdError.code, 0, 0]
    assert len(rig.shard.timers) == 4  # two sessions, the sync, and the next look for expired offsets


def test_loaded_group_that_is_too_large_has_to_rejoin() -> None:
    rig = Rig()
    members, generation = rig.stable_group(3)
    rig.config = type(rig.config)(group_max_size=2)
    rig.restart()
    assert rig.state() is GroupState.PREPARING_REBALANCE
    replies = [rig.join(member) for member in members]
    assert code(replies[2]) == GroupMaxSizeReachedError.code
    rig.pass_time(60)
    assert [reply.value.generation_id for reply in replies[:2]] == [generation + 1] * 2


def test_member_that_rejoins_too_late_for_a_place_is_none_any_more() -> None:
    """It is told that the group is full; a round must not wait for it, nor may it stay without a session."""
    rig = Rig(group_max_size=2, group_initial_rebalance_delay_ms=0)
    (leader, follower), _ = rig.stable_group(2)
    rejoins = rig.join(leader)
    newcomer = rig.join()
    assert not rejoins.is_set
    late = rig.join(follower)
    assert code(late) == GroupMaxSizeReachedError.code
    assert follower not in rig.group().members
    assert [code(reply) for reply in (rejoins, newcomer)] == [0, 0]
