"""How long members of a consumer group may be silent, and how long they may take to give up partitions.

Nobody takes back the deadlines of a member that goes or has given up what it had to: that may fail to be written, and
then it must still end. One that fires for somebody who is gone, or has nothing to give up, does nothing.
"""

from __future__ import annotations

from typing import Final

from triokafka.coordinator.consumer_group.group import ConsumerGroup
from triokafka.coordinator.consumer_group.leaving import remove
from triokafka.coordinator.consumer_group.member import MemberState, Progress
from triokafka.coordinator.stored import GroupTurn
from triokafka.coordinator.timers import TimerKey
from triokafka.coordinator.topics import TopicsView

SESSION: Final = "consumer session"
REVOCATION: Final = "revocation"


def session_timer(group_id: str, member_id: str) -> TimerKey:
    """The deadline by which a member must be heard of."""
    return TimerKey(SESSION, group_id, member_id)


def revocation_timer(group_id: str, member_id: str) -> TimerKey:
    """The deadline by which a member must have given up what it was told to."""
    return TimerKey(REVOCATION, group_id, member_id)


def start(group_id: str, member_id: str, timeout_ms: int, turn: GroupTurn) -> None:
    """A member was heard of: it has a full session again."""
    turn.timers.schedule(session_timer(group_id, member_id), turn.at.now + timeout_ms / 1000)


def watch_revocation(
    group_id: str, member_id: str, before: Progress | None, after: Progress, rebalance_timeout_ms: int, turn: GroupTurn
) -> None:
    """A member has moved on: while it has something to give up, its time for that runs."""
    if before != after and after.state is MemberState.UNREVOKED_PARTITIONS:
        turn.timers.schedule(revocation_timer(group_id, member_id), turn.at.now + rebalance_timeout_ms / 1000)


def start_all(group: ConsumerGroup, timeout_ms: int, turn: GroupTurn) -> None:
    """The group was just read from the log: nobody is late because of that (cluster/GMD-23)."""
    for member_id, profile in group.profiles.items():
        start(group.group_id, member_id, timeout_ms, turn)
        watch_revocation(
            group.group_id, member_id, None, group.progress_of(member_id), profile.rebalance_timeout_ms, turn
        )


def time_over(group: ConsumerGroup, key: TimerKey, topics: TopicsView, turn: GroupTurn) -> None:
    """A member was silent for too long, or holds on to what it had to give up: it is none any more."""
    member_id = key.member_id
    if member_id not in group.profiles:
        return
    if key.kind == REVOCATION:
        if group.progress_of(member_id).state is not MemberState.UNREVOKED_PARTITIONS:
            return
        why = "did not give up its partitions in time"
    else:
        why = "was silent for too long"
    turn.note(f"group {group.group_id!r}: member {member_id} {why}")
    for change in remove(group, [member_id], topics):
        turn.write(change)

    def not_removed(_error: Exception, later: GroupTurn) -> None:
        if not turn.appended:  # it is still there, and must not stay for ever
            later.timers.schedule(key, later.at.now + _AGAIN_SECONDS)

    turn.on_failed = not_removed


_AGAIN_SECONDS: Final = 1.0
