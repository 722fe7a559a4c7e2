"""Deadlines of the members of a consumer group: sessions, revocation, rejoin and sync.

A member of the consumer protocol has its rebalance timeout to revoke partitions. A classic member has it to rejoin
after the coordinator has requested it, and again to sync after it has joined.

The deadlines of a removed member are cancelled only after the removal is appended: if the append fails, they must still
fire. A deadline that fires for a removed member, or for a member with nothing to do, has no effect.
"""

from __future__ import annotations

from typing import Final

from triokafka.coordinator.consumer_group.consumer_group import ConsumerGroup
from triokafka.coordinator.consumer_group.member import MemberProgress, MemberState
from triokafka.coordinator.group.records import GroupEffects
from triokafka.coordinator.runtime.timer_queue import TimerKey

SESSION: Final = "consumer session"
REVOCATION: Final = "revocation"
JOIN: Final = "classic join"
SYNC: Final = "classic sync"
_KINDS: Final = (SESSION, REVOCATION, JOIN, SYNC)


def session_timer(group_id: str, member_id: str) -> TimerKey:
    """Return the timer key of a member's session."""
    return TimerKey(SESSION, group_id, member_id)


def revocation_timer(group_id: str, member_id: str) -> TimerKey:
    """Return the timer key by which a member must have revoked partitions."""
    return TimerKey(REVOCATION, group_id, member_id)


def join_timer(group_id: str, member_id: str) -> TimerKey:
    """Return the timer key by which a classic member must have rejoined."""
    return TimerKey(JOIN, group_id, member_id)


def sync_timer(group_id: str, member_id: str) -> TimerKey:
    """Return the timer key by which a classic member that has joined must have synced."""
    return TimerKey(SYNC, group_id, member_id)


def start(group_id: str, member_id: str, timeout_ms: int, effects: GroupEffects) -> None:
    """Restart a member's session."""
    effects.timers.schedule(session_timer(group_id, member_id), effects.at.now + timeout_ms / 1000)


def end(group_id: str, member_id: str, effects: GroupEffects) -> None:
    """Cancel all deadlines of a member that has left the consumer group."""
    for kind in _KINDS:
        effects.timers.cancel(TimerKey(kind, group_id, member_id))


def watch_revocation(
    group_id: str,
    member_id: str,
    before: MemberProgress | None,
    after: MemberProgress,
    rebalance_timeout_ms: int,
    effects: GroupEffects,
) -> None:
    """Start the revocation deadline if the member's new state has partitions to revoke."""
    if before != after and after.state is MemberState.UNREVOKED_PARTITIONS:
        effects.timers.schedule(revocation_timer(group_id, member_id), effects.at.now + rebalance_timeout_ms / 1000)


def expect_join(group: ConsumerGroup, member_id: str, effects: GroupEffects) -> None:
    """Start the rejoin deadline of a classic member, unless it is running."""
    key = join_timer(group.group_id, member_id)
    if key not in effects.timers:
        effects.timers.schedule(key, effects.at.now + group.profiles[member_id].rebalance_timeout_ms / 1000)


def joined(group: ConsumerGroup, member_id: str, effects: GroupEffects) -> None:
    """Start the sync deadline of a classic member that has joined, and cancel its other deadlines."""
    profile = group.profiles[member_id]
    effects.timers.cancel(join_timer(group.group_id, member_id))
    effects.timers.cancel(revocation_timer(group.group_id, member_id))
    if profile.classic is not None:
        start(group.group_id, member_id, profile.classic.session_timeout_ms, effects)
    effects.timers.schedule(sync_timer(group.group_id, member_id), effects.at.now + profile.rebalance_timeout_ms / 1000)


def start_all(group: ConsumerGroup, timeout_ms: int, effects: GroupEffects) -> None:
    """Start the deadlines of all members, in full, after the group was loaded or converted.

    ``timeout_ms`` is the session timeout of members of the consumer protocol. The log does not show whether a classic
    member has synced, so no sync deadline starts.
    """
    for member_id, profile in group.profiles.items():
        if profile.classic is not None:
            start(group.group_id, member_id, profile.classic.session_timeout_ms, effects)
            if group.must_rejoin(member_id):
                expect_join(group, member_id, effects)
            continue
        start(group.group_id, member_id, timeout_ms, effects)
        watch_revocation(
            group.group_id, member_id, None, group.progress_of(member_id), profile.rebalance_timeout_ms, effects
        )
