"""How long members of a consumer group may be silent, and how long they may take for what they are to do.

A member under the consumer protocol may take its rebalance timeout to give up partitions; one under the classic
protocol may take it to join after it was told to, and again to sync after it has joined.

The deadlines of a member that goes are taken back once that is written: it may fail, and then they must still end. One
that fires for somebody who is gone, or has nothing to do, does nothing.
"""

from __future__ import annotations

from typing import Final

from triokafka.coordinator.consumer_group.group import ConsumerGroup
from triokafka.coordinator.consumer_group.member import MemberState, Progress
from triokafka.coordinator.stored import GroupTurn
from triokafka.coordinator.timers import TimerKey

SESSION: Final = "consumer session"
REVOCATION: Final = "revocation"
JOIN: Final = "classic join"
SYNC: Final = "classic sync"
_KINDS: Final = (SESSION, REVOCATION, JOIN, SYNC)


def session_timer(group_id: str, member_id: str) -> TimerKey:
    """The deadline by which a member must be heard of."""
    return TimerKey(SESSION, group_id, member_id)


def revocation_timer(group_id: str, member_id: str) -> TimerKey:
    """The deadline by which a member must have given up what it was told to."""
    return TimerKey(REVOCATION, group_id, member_id)


def join_timer(group_id: str, member_id: str) -> TimerKey:
    """The deadline by which a classic member must have joined again."""
    return TimerKey(JOIN, group_id, member_id)


def sync_timer(group_id: str, member_id: str) -> TimerKey:
    """The deadline by which a classic member that has joined must have asked for its assignment."""
    return TimerKey(SYNC, group_id, member_id)


def start(group_id: str, member_id: str, timeout_ms: int, turn: GroupTurn) -> None:
    """A member was heard of: it has a full session again."""
    turn.timers.schedule(session_timer(group_id, member_id), turn.at.now + timeout_ms / 1000)


def end(group_id: str, member_id: str, turn: GroupTurn) -> None:
    """It is no member of a consumer group any more: nothing is expected of it."""
    for kind in _KINDS:
        turn.timers.cancel(TimerKey(kind, group_id, member_id))


def watch_revocation(
    group_id: str, member_id: str, before: Progress | None, after: Progress, rebalance_timeout_ms: int, turn: GroupTurn
) -> None:
    """A member has moved on: while it has something to give up, its time for that runs."""
    if before != after and after.state is MemberState.UNREVOKED_PARTITIONS:
        turn.timers.schedule(revocation_timer(group_id, member_id), turn.at.now + rebalance_timeout_ms / 1000)


def expect_join(group: ConsumerGroup, member_id: str, turn: GroupTurn) -> None:
    """A classic member is told to join again: its time for that runs, if it does not yet."""
    key = join_timer(group.group_id, member_id)
    if key not in turn.timers:
        turn.timers.schedule(key, turn.at.now + group.profiles[member_id].rebalance_timeout_ms / 1000)


def joined(group: ConsumerGroup, member_id: str, turn: GroupTurn) -> None:
    """A classic member has joined: its time to sync runs."""
    profile = group.profiles[member_id]
    turn.timers.cancel(join_timer(group.group_id, member_id))
    turn.timers.cancel(revocation_timer(group.group_id, member_id))
    if profile.classic is not None:
        start(group.group_id, member_id, profile.classic.session_timeout_ms, turn)
    turn.timers.schedule(sync_timer(group.group_id, member_id), turn.at.now + profile.rebalance_timeout_ms / 1000)


def start_all(group: ConsumerGroup, timeout_ms: int, turn: GroupTurn) -> None:
    """The group was just read from the log: nobody is late because of that.

    ``timeout_ms`` is the session of members under the consumer protocol. Whether a classic member that has joined has
    synced as well is not in the log; it is not held to that.
    """
    for member_id, profile in group.profiles.items():
        if profile.classic is not None:
            start(group.group_id, member_id, profile.classic.session_timeout_ms, turn)
            if group.must_rejoin(member_id):
                expect_join(group, member_id, turn)
            continue
        start(group.group_id, member_id, timeout_ms, turn)
        watch_revocation(
            group.group_id, member_id, None, group.progress_of(member_id), profile.rebalance_timeout_ms, turn
        )
