"""Removal of members: they leave permanently or temporarily, their session expires, or they miss a deadline."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from triokafka.coordinator.consumer_group import sessions
from triokafka.coordinator.consumer_group.advance import hash_of_topics, removal_of
from triokafka.coordinator.consumer_group.consumer_group import ConsumerGroup
from triokafka.coordinator.consumer_group.member import LEAVING_FOR_NOW, MemberState
from triokafka.coordinator.consumer_group.migration import classic_group, downgrade, must_downgrade
from triokafka.coordinator.consumer_group.records import (
    ConsumerGroupChange,
    EpochChange,
    PatternChange,
    ProgressChange,
)
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.records import GroupEffects
from triokafka.coordinator.group.topics_view import TopicsView
from triokafka.coordinator.runtime.timer_queue import TimerKey

_AGAIN_SECONDS: Final = 1.0


def leave(
    shard: GroupShard,
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    member_epoch: int,
    effects: GroupEffects,
) -> None:
    """Handle a member's last heartbeat. A static member that leaves temporarily keeps its part of the assignment.

    Raises:
        UnknownMemberIdError: the group has no such member or instance.
        FencedInstanceIdError: another member now has the instance id.
    """
    group.requesting_member(member_id, instance_id)
    if member_epoch == LEAVING_FOR_NOW:
        progress = group.progress_of(member_id)._replace(epoch=LEAVING_FOR_NOW, state=MemberState.STABLE, revoking={})
        effects.write(ProgressChange(group.group_id, member_id, progress))
    else:
        depart(shard, group, [member_id], effects)


def depart(shard: GroupShard, group: ConsumerGroup, member_ids: Collection[str], effects: GroupEffects) -> None:
    """Remove members. The remaining members receive their partitions from their next heartbeats on. If all of them use
    the classic protocol and the migration policy allows it, the group becomes a classic group."""
    if must_downgrade(group, shard.config, without=member_ids):
        left = {known: profile for known, profile in group.profiles.items() if known not in member_ids}
        owned = {known: group.progress_of(known).held_partitions for known in left}
        downgrade(shard, group, classic_group(group, left, owned, shard.topics), effects)
        return
    effects.write(*remove(group, member_ids, shard.topics))

    def departed(now: GroupEffects) -> None:
        for member_id in member_ids:
            sessions.end(group.group_id, member_id, now)

    effects.on_appended = departed


def remove(group: ConsumerGroup, member_ids: Collection[str], topics: TopicsView) -> list[ConsumerGroupChange]:
    """Return the changes that remove members and start a new epoch, in which others get their partitions."""
    leaving = [group.profiles[member_id] for member_id in member_ids]
    changes = [change for member_id in member_ids for change in removal_of(group, member_id)]
    changes += [PatternChange(group.group_id, pattern, None) for pattern in group.unused_patterns(without=leaving)]
    metadata_hash = hash_of_topics(group.wanted_topics(without=leaving), topics)
    changes.append(EpochChange(group.group_id, (group.epoch + 1, metadata_hash)))
    return changes


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
    if key.kind == sessions.SESSION:
        return "removed: its session expired"
    if profile.classic is None:
        holds_on = group.progress_of(key.part_id).state is MemberState.UNREVOKED_PARTITIONS
        return (
            "removed: it did not revoke its partitions in time"
            if key.kind == sessions.REVOCATION and holds_on
            else None
        )
    return {
        sessions.JOIN: "removed: it did not rejoin in time",
        sessions.SYNC: "removed: it did not sync in time",
    }.get(key.kind)
