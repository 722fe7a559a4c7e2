"""Removal of members whose session has expired, or that did not revoke, join or sync in time (KIP-848)."""

from __future__ import annotations

from typing import Final

from triokafka.coordinator.consumer_group import timers
from triokafka.coordinator.consumer_group.consumer_group import ConsumerGroup
from triokafka.coordinator.consumer_group.leaving import depart
from triokafka.coordinator.consumer_group.member import MemberState
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.records import GroupEffects
from triokafka.coordinator.runtime.timer_queue import TimerKey

_AGAIN_SECONDS: Final = 1.0


def time_over(shard: GroupShard, group: ConsumerGroup, key: TimerKey, effects: GroupEffects) -> None:
    """Remove a member whose session expired, or that did not revoke, join or sync in time."""
    why = _removal_reason(group, key)
    if why is None:
        return
    effects.note(f"group {group.group_id!r}: member {key.part_id} {why}")
    depart(shard, group, [key.part_id], effects)

    def not_removed(_error: Exception, later: GroupEffects) -> None:
        if not effects.appended:  # the member remains; try again, so that it does not stay forever
            later.timers.schedule(key, later.at.now + _AGAIN_SECONDS)

    effects.on_failed = not_removed


def _removal_reason(group: ConsumerGroup, key: TimerKey) -> str | None:
    """Return why the expired deadline removes the member; None when it does not."""
    profile = group.profiles.get(key.part_id)
    if profile is None:
        return None
    if key.kind == timers.SESSION:
        return "removed: its session expired"
    if profile.classic is None:
        holds_on = group.progress_of(key.part_id).state is MemberState.UNREVOKED_PARTITIONS
        return (
            "removed: it did not revoke its partitions in time" if key.kind == timers.REVOCATION and holds_on else None
        )
    return {
        timers.JOIN: "removed: it did not rejoin in time",
        timers.SYNC: "removed: it did not sync in time",
    }.get(key.kind)
