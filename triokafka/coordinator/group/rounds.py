"""Rebalance rounds of a classic group: when one starts, when it is complete, and what happens to those who are late.

Every function changes the group at once and writes into its `Turn` the records, answers and deadlines that follow. None
of them waits. A round has two halves: joins are parked until everybody is there or the rebalance timeout is over; then
syncs are parked until the leader's assignment is stored.
"""

from __future__ import annotations

from typing import Final

from triokafka.coordinator.config import GroupCoordinatorConfig
from triokafka.coordinator.group.classic import ClassicGroup
from triokafka.coordinator.group.member import Member
from triokafka.coordinator.group.state import GroupState
from triokafka.coordinator.group.stored import group_change
from triokafka.coordinator.stored import GroupTurn
from triokafka.coordinator.timers import TimerKey
from triokafka.coordinator.turn import Reply
from triokafka.errors import RebalanceInProgressError, UnknownMemberIdError
from triokafka.protocol.api.join_group import JoinGroupResponse, JoinGroupResponseMember
from triokafka.protocol.api.sync_group import SyncGroupResponse

JOIN: Final = "join"
SYNC: Final = "sync"
SESSION: Final = "session"


def join_timer(group: ClassicGroup) -> TimerKey:
    """The deadline of a round's first half."""
    return TimerKey(JOIN, group.group_id)


def sync_timer(group: ClassicGroup) -> TimerKey:
    """The deadline of a round's second half."""
    return TimerKey(SYNC, group.group_id)


def session_timer(group: ClassicGroup, member_id: str) -> TimerKey:
    """The deadline by which a member must be heard of."""
    return TimerKey(SESSION, group.group_id, member_id)


# --- sessions ---


def start_session(group: ClassicGroup, member: Member, turn: GroupTurn) -> None:
    """A member was heard of: it has a full session timeout again."""
    set_session(group, member.member_id, member.session_timeout_ms, turn)


def set_session(group: ClassicGroup, member_id: str, timeout_ms: int, turn: GroupTurn) -> None:
    """Give a member id this long to be heard of."""
    turn.timers.schedule(session_timer(group, member_id), turn.at.now + timeout_ms / 1000)


# --- starting a round ---


def rebalance_or_complete(group: ClassicGroup, reason: str, config: GroupCoordinatorConfig, turn: GroupTurn) -> None:
    """Something changed: start a round, or see whether that completes the one in progress."""
    if group.can_rebalance:
        prepare_rebalance(group, reason, config, turn)
    else:
        maybe_complete_join(group, turn)


def prepare_rebalance(group: ClassicGroup, reason: str, config: GroupCoordinatorConfig, turn: GroupTurn) -> None:
    """Start a round. Syncs of the round before are sent back to join.

    The first round of an empty group waits for ``group_initial_rebalance_delay_ms`` even when everybody is there, so
    that members that start together end up in one round (KIP-134).
    """
    turn.note(f"group {group.group_id!r} (generation {group.generation}) rebalances: {reason}")
    if group.state is GroupState.COMPLETING_REBALANCE:
        fail_syncs(group, RebalanceInProgressError.code, turn)
    turn.timers.cancel(sync_timer(group))
    group.pending_syncs.clear()
    first_round = group.state is GroupState.EMPTY
    group.transition_to(GroupState.PREPARING_REBALANCE, turn.at.wall_ms)
    if first_round:
        delay_ms = config.group_initial_rebalance_delay_ms
        group.member_arrived = False
        group.initial_delay = (delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        turn.timers.schedule(join_timer(group), turn.at.now + delay_ms / 1000)
    elif group.all_have_joined:
        complete_join(group, turn)
    else:
        turn.timers.schedule(join_timer(group), turn.at.now + group.rebalance_timeout_ms / 1000)


def maybe_complete_join(group: ClassicGroup, turn: GroupTurn) -> None:
    """End the first half of the round if nobody is missing; the initial delay is always waited for."""
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.previous_state is not GroupState.EMPTY
        and group.all_have_joined
    ):
        complete_join(group, turn)


def join_time_over(group: ClassicGroup, config: GroupCoordinatorConfig, turn: GroupTurn) -> None:
    """The join deadline passed: extend the initial delay if members arrived, else make do with those there."""
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    if group.initial_delay is not None:
        delay_ms, remaining_ms = group.initial_delay
        if group.member_arrived and remaining_ms > 0:
            group.member_arrived = False
            next_delay_ms = min(config.group_initial_rebalance_delay_ms, remaining_ms)
            group.initial_delay = (next_delay_ms, max(remaining_ms - delay_ms, 0))
            turn.timers.schedule(join_timer(group), turn.at.now + next_delay_ms / 1000)
            return
    complete_join(group, turn)


# --- completing a round ---


def complete_join(group: ClassicGroup, turn: GroupTurn) -> None:
    """End the first half: drop who did not rejoin, count up the generation, answer everybody.

    Static members keep their place although they are late. When only such members are left and none has rejoined, the
    round goes on, until their sessions expire. Without members the group is stored as empty.
    """
    turn.timers.cancel(join_timer(group))
    for member in list(group.members.values()):
        if not member.awaits_join and not member.is_static:
            turn.note(f"group {group.group_id!r} drops {member.member_id}: it did not rejoin in time")
            drop_member(group, member.member_id, turn)
    if group.members and not group.elect_joined_leader():
        turn.timers.schedule(join_timer(group), turn.at.now + group.rebalance_timeout_ms / 1000)
        return
    group.next_generation(turn.at.wall_ms)
    if group.state is GroupState.EMPTY:
        turn.note(f"group {group.group_id!r} is empty (generation {group.generation})")
        turn.write(group_change(group, {}))
        return
    turn.note(
        f"group {group.group_id!r} is in generation {group.generation} with {len(group.members)} members, "
        f"led by {group.leader_id}"
    )
    roster = member_roster(group)
    for member in group.members.values():
        reply = group.take_join(member)
        if reply is not None:
            is_leader = member.member_id == group.leader_id
            turn.answer(reply, joined(group, member.member_id, roster if is_leader else []))
        member.is_new = False
        group.pending_syncs[member.member_id] = None
        start_session(group, member, turn)
    turn.timers.schedule(sync_timer(group), turn.at.now + group.rebalance_timeout_ms / 1000)


def sync_time_over(group: ClassicGroup, config: GroupCoordinatorConfig, turn: GroupTurn) -> None:
    """The sync deadline passed: members of the generation that never synced are out, and the rest start again."""
    if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE) or not group.pending_syncs:
        return
    late = list(group.pending_syncs)
    for member_id in late:
        drop_member(group, member_id, turn)
    prepare_rebalance(group, f"{len(late)} members did not sync in time: {', '.join(late[:5])}", config, turn)


def sync_arrived(group: ClassicGroup, member_id: str, turn: GroupTurn) -> None:
    """A member of the generation has synced; with all of them, the sync deadline is off."""
    group.pending_syncs.pop(member_id, None)
    if not group.pending_syncs:
        turn.timers.cancel(sync_timer(group))


# --- members who go ---


def drop_member(group: ClassicGroup, member_id: str, turn: GroupTurn) -> None:
    """Take a member out. What it waits on is answered UNKNOWN_MEMBER_ID, so that it starts afresh if it is alive."""
    turn.timers.cancel(session_timer(group, member_id))
    member = group.remove(member_id)
    if member is not None:
        answer_waiting(group, member, UnknownMemberIdError.code, turn)


def answer_waiting(group: ClassicGroup, member: Member, error_code: int, turn: GroupTurn) -> None:
    """Answer both requests that a member, no longer of the group, may wait on."""
    join_reply, member.join_reply = member.join_reply, None
    if join_reply is not None:
        member_id = "" if error_code == UnknownMemberIdError.code else member.member_id
        turn.answer(join_reply, JoinGroupResponse(error_code=error_code, member_id=member_id))
    sync_reply, member.sync_reply = member.sync_reply, None
    if sync_reply is not None:
        turn.answer(sync_reply, SyncGroupResponse(error_code=error_code))


def member_gone(
    group: ClassicGroup, member_id: str, reason: str, config: GroupCoordinatorConfig, turn: GroupTurn
) -> None:
    """A member left or died: drop it and see what that means for the round."""
    drop_member(group, member_id, turn)
    after_departure(group, reason, config, turn)


def after_departure(group: ClassicGroup, reason: str, config: GroupCoordinatorConfig, turn: GroupTurn) -> None:
    """Members are gone: rebalance the rest, or complete the round that waited for them."""
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare_rebalance(group, reason, config, turn)
    elif group.state is GroupState.PREPARING_REBALANCE:
        maybe_complete_join(group, turn)


# --- answers ---


def fail_syncs(group: ClassicGroup, error_code: int, turn: GroupTurn) -> None:
    """No assignment comes of this generation: clear what was assigned and answer the parked syncs with an error."""
    for member in group.members.values():
        member.assignment = b""
        answer_sync(group, member, SyncGroupResponse(error_code=error_code), turn)


def answer_sync(group: ClassicGroup, member: Member, response: SyncGroupResponse, turn: GroupTurn) -> None:
    """Answer a parked sync, if there is one, and give the member a full session."""
    reply, member.sync_reply = member.sync_reply, None
    if reply is not None:
        turn.answer(reply, response)
        start_session(group, member, turn)


def park_join(group: ClassicGroup, member: Member, reply: Reply[JoinGroupResponse], turn: GroupTurn) -> None:
    """Let a join wait. An older one of the same member is sent back: its client has given up on it."""
    older = group.park_join(member, reply)
    if older is not None:
        turn.answer(older, JoinGroupResponse(error_code=RebalanceInProgressError.code, member_id=member.member_id))


def member_roster(group: ClassicGroup) -> list[JoinGroupResponseMember]:
    """What the leader is told about every member."""
    protocol = group.protocol or ""
    return [
        JoinGroupResponseMember(
            member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata(protocol)
        )
        for member in group.members.values()
    ]


def joined(
    group: ClassicGroup,
    member_id: str,
    members: list[JoinGroupResponseMember],
    *,
    leader: str | None = None,
    skip_assignment: bool = False,
) -> JoinGroupResponse:
    """The answer that a member is in the current generation."""
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol or "",
        leader=(group.leader_id or "") if leader is None else leader,
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=members,
    )
