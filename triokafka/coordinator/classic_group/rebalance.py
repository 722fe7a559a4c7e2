"""Rebalances of a classic group: when one starts, when it completes, and how late members are handled.

Every function changes the group and writes the resulting records, answers and deadlines into its `Effects`. None waits.

A rebalance has two phases. In the join phase, JoinGroup requests are parked until all members have rejoined or
the rebalance timeout expires. In the sync phase, SyncGroup requests are parked until the leader's assignment is stored.
"""

from __future__ import annotations

from typing import Final

from triokafka.coordinator.classic_group.classic_group import ClassicGroup
from triokafka.coordinator.classic_group.member import Member
from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.classic_group.stored_group import group_change
from triokafka.coordinator.group.config import GroupCoordinatorConfig
from triokafka.coordinator.group.records import GroupEffects
from triokafka.coordinator.runtime.reply import Reply
from triokafka.coordinator.runtime.timer_queue import TimerKey
from triokafka.errors import RebalanceInProgressError, UnknownMemberIdError
from triokafka.protocol.api.join_group import JoinGroupResponse, JoinGroupResponseMember
from triokafka.protocol.api.sync_group import SyncGroupResponse

JOIN: Final = "join"
SYNC: Final = "sync"
SESSION: Final = "session"


def join_timer(group: ClassicGroup) -> TimerKey:
    """Return the timer key of the join phase."""
    return TimerKey(JOIN, group.group_id)


def sync_timer(group: ClassicGroup) -> TimerKey:
    """Return the timer key of the sync phase."""
    return TimerKey(SYNC, group.group_id)


def session_timer(group: ClassicGroup, member_id: str) -> TimerKey:
    """Return the timer key of a member's session."""
    return TimerKey(SESSION, group.group_id, member_id)


# --- sessions ---


def start_session(group: ClassicGroup, member: Member, effects: GroupEffects) -> None:
    """Restart the member's session with its full session timeout."""
    set_session(group, member.member_id, member.session_timeout_ms, effects)


def set_session(group: ClassicGroup, member_id: str, timeout_ms: int, effects: GroupEffects) -> None:
    """Set the session deadline of a member id to ``timeout_ms`` from now."""
    effects.timers.schedule(session_timer(group, member_id), effects.at.now + timeout_ms / 1000)


# --- starting a rebalance ---


def rebalance_or_complete(
    group: ClassicGroup, reason: str, config: GroupCoordinatorConfig, effects: GroupEffects
) -> None:
    """Start a rebalance if the state allows one; otherwise complete the current join phase if no member is missing."""
    if group.can_rebalance:
        prepare_rebalance(group, reason, config, effects)
    else:
        maybe_complete_join(group, effects)


def prepare_rebalance(group: ClassicGroup, reason: str, config: GroupCoordinatorConfig, effects: GroupEffects) -> None:
    """Start a rebalance. Parked syncs of the previous generation fail with REBALANCE_IN_PROGRESS.

    The first rebalance of an empty group waits for ``group_initial_rebalance_delay_ms`` even when all members have
    joined, so that members that start together share one generation (KIP-134).
    """
    effects.note(f"group {group.group_id!r} (generation {group.generation}) starts a rebalance: {reason}")
    if group.state is GroupState.COMPLETING_REBALANCE:
        fail_syncs(group, RebalanceInProgressError.code, effects)
    effects.timers.cancel(sync_timer(group))
    group.pending_syncs.clear()
    first_round = group.state is GroupState.EMPTY
    group.transition_to(GroupState.PREPARING_REBALANCE, effects.at.wall_ms)
    if first_round:
        delay_ms = config.group_initial_rebalance_delay_ms
        group.member_arrived = False
        group.initial_delay = (delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        effects.timers.schedule(join_timer(group), effects.at.now + delay_ms / 1000)
    elif group.all_have_joined:
        complete_join(group, effects)
    else:
        effects.timers.schedule(join_timer(group), effects.at.now + group.rebalance_timeout_ms / 1000)


def maybe_complete_join(group: ClassicGroup, effects: GroupEffects) -> None:
    """Complete the join phase if no member is missing. The initial rebalance delay is never cut short."""
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.previous_state is not GroupState.EMPTY
        and group.all_have_joined
    ):
        complete_join(group, effects)


def join_time_over(group: ClassicGroup, config: GroupCoordinatorConfig, effects: GroupEffects) -> None:
    """Handle the join deadline: extend the initial delay if members arrived, else complete with the joined members."""
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    if group.initial_delay is not None:
        delay_ms, remaining_ms = group.initial_delay
        if group.member_arrived and remaining_ms > 0:
            group.member_arrived = False
            next_delay_ms = min(config.group_initial_rebalance_delay_ms, remaining_ms)
            group.initial_delay = (next_delay_ms, max(remaining_ms - delay_ms, 0))
            effects.timers.schedule(join_timer(group), effects.at.now + next_delay_ms / 1000)
            return
    complete_join(group, effects)


# --- completing a rebalance ---


def complete_join(group: ClassicGroup, effects: GroupEffects) -> None:
    """Complete the join phase: drop members that did not rejoin, start the next generation, answer parked joins.

    Static members that are late keep their place. When only such members are left and none has rejoined, the join phase
    continues until their sessions expire. A group without members is stored as empty.
    """
    effects.timers.cancel(join_timer(group))
    for member in list(group.members.values()):
        if not member.awaits_join and not member.is_static:
            effects.note(f"group {group.group_id!r}: member {member.member_id} removed: it did not rejoin in time")
            drop_member(group, member.member_id, effects)
    if group.members and not group.elect_joined_leader():
        effects.timers.schedule(join_timer(group), effects.at.now + group.rebalance_timeout_ms / 1000)
        return
    group.next_generation(effects.at.wall_ms)
    if group.state is GroupState.EMPTY:
        effects.note(f"group {group.group_id!r} (generation {group.generation}) is empty")
        effects.write(group_change(group, {}))
        return
    effects.note(
        f"group {group.group_id!r}: generation {group.generation} has {len(group.members)} members, leader"
        f" {group.leader_id}"
    )
    roster = member_roster(group)
    for member in group.members.values():
        reply = group.take_join(member)
        if reply is not None:
            is_leader = member.member_id == group.leader_id
            effects.answer(reply, joined(group, member.member_id, roster if is_leader else []))
        member.is_new = False
        group.pending_syncs[member.member_id] = None
        start_session(group, member, effects)
    effects.timers.schedule(sync_timer(group), effects.at.now + group.rebalance_timeout_ms / 1000)


def sync_time_over(group: ClassicGroup, config: GroupCoordinatorConfig, effects: GroupEffects) -> None:
    """Handle the sync deadline: remove the members that did not sync, and start another rebalance."""
    if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE) or not group.pending_syncs:
        return
    late = list(group.pending_syncs)
    for member_id in late:
        drop_member(group, member_id, effects)
    prepare_rebalance(group, f"{len(late)} members did not sync in time: {', '.join(late[:5])}", config, effects)


def sync_arrived(group: ClassicGroup, member_id: str, effects: GroupEffects) -> None:
    """Note that a member has synced; cancel the sync deadline when no sync is pending."""
    group.pending_syncs.pop(member_id, None)
    if not group.pending_syncs:
        effects.timers.cancel(sync_timer(group))


# --- removing members ---


def drop_member(group: ClassicGroup, member_id: str, effects: GroupEffects) -> None:
    """Remove a member. Its parked requests fail with UNKNOWN_MEMBER_ID, so that a live client joins as a new member."""
    effects.timers.cancel(session_timer(group, member_id))
    member = group.remove(member_id)
    if member is not None:
        answer_waiting(group, member, UnknownMemberIdError.code, effects)


def answer_waiting(group: ClassicGroup, member: Member, error_code: int, effects: GroupEffects) -> None:
    """Answer both parked requests of a removed or replaced member with an error."""
    join_reply, member.join_reply = member.join_reply, None
    if join_reply is not None:
        member_id = "" if error_code == UnknownMemberIdError.code else member.member_id
        effects.answer(join_reply, JoinGroupResponse(error_code=error_code, member_id=member_id))
    sync_reply, member.sync_reply = member.sync_reply, None
    if sync_reply is not None:
        effects.answer(sync_reply, SyncGroupResponse(error_code=error_code))


def member_gone(
    group: ClassicGroup, member_id: str, reason: str, config: GroupCoordinatorConfig, effects: GroupEffects
) -> None:
    """Remove a member that left or died, then rebalance or complete the join phase."""
    drop_member(group, member_id, effects)
    after_departure(group, reason, config, effects)


def after_departure(group: ClassicGroup, reason: str, config: GroupCoordinatorConfig, effects: GroupEffects) -> None:
    """After members were removed: start a rebalance, or complete the join phase that waited for them."""
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare_rebalance(group, reason, config, effects)
    elif group.state is GroupState.PREPARING_REBALANCE:
        maybe_complete_join(group, effects)


# --- answers ---


def fail_syncs(group: ClassicGroup, error_code: int, effects: GroupEffects) -> None:
    """Clear the assignments of a failed generation and answer its parked syncs with an error."""
    for member in group.members.values():
        member.assignment = b""
        answer_sync(group, member, SyncGroupResponse(error_code=error_code), effects)


def answer_sync(group: ClassicGroup, member: Member, response: SyncGroupResponse, effects: GroupEffects) -> None:
    """Answer the member's parked sync, if any, and restart the session."""
    reply, member.sync_reply = member.sync_reply, None
    if reply is not None:
        effects.answer(reply, response)
        start_session(group, member, effects)


def park_join(group: ClassicGroup, member: Member, reply: Reply[JoinGroupResponse], effects: GroupEffects) -> None:
    """Park a join. An older parked join of the same member fails with REBALANCE_IN_PROGRESS: its client gave it up."""
    older = group.park_join(member, reply)
    if older is not None:
        effects.answer(older, JoinGroupResponse(error_code=RebalanceInProgressError.code, member_id=member.member_id))


def member_roster(group: ClassicGroup) -> list[JoinGroupResponseMember]:
    """Return the member list for the leader's JoinGroup response."""
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
    """Return the response to a successful JoinGroup in the current generation."""
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol or "",
        leader=(group.leader_id or "") if leader is None else leader,
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=members,
    )
