"""Members that go: for good, for now, because they fell silent, or because they did not do in time what they had to."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from triokafka.coordinator.consumer_group import sessions
from triokafka.coordinator.consumer_group.advance import hash_of_topics, removal_of
from triokafka.coordinator.consumer_group.changes import ConsumerGroupChange, EpochChange, ProgressChange
from triokafka.coordinator.consumer_group.group import ConsumerGroup
from triokafka.coordinator.consumer_group.member import LEAVING_FOR_NOW, MemberState
from triokafka.coordinator.consumer_group.migration import classic_group, downgrade, goes_back
from triokafka.coordinator.consumer_group.patterns import unused
from triokafka.coordinator.stored import GroupTurn
from triokafka.coordinator.timers import TimerKey
from triokafka.coordinator.topics import TopicsView

if TYPE_CHECKING:
    from triokafka.coordinator.shard import GroupShard

_AGAIN_SECONDS: Final = 1.0


def leave(
    shard: GroupShard,
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    member_epoch: int,
    turn: GroupTurn,
) -> None:
    """A member's last heartbeat. A static member that leaves for now keeps its part of the assignment.

    Raises:
        UnknownMemberIdError: there is no such member, or no such instance.
        FencedInstanceIdError: the instance is another member by now.
    """
    group.speaker(member_id, instance_id)
    if member_epoch == LEAVING_FOR_NOW:
        progress = group.progress_of(member_id)._replace(epoch=LEAVING_FOR_NOW, state=MemberState.STABLE, revoking={})
        turn.write(ProgressChange(group.group_id, member_id, progress))
    else:
        depart(shard, group, [member_id], turn)


def depart(shard: GroupShard, group: ConsumerGroup, member_ids: Collection[str], turn: GroupTurn) -> None:
    """Members are gone: forget them. Those who are left get what they owned from their next heartbeats on; when all of
    them are under the classic protocol, the group goes back to that, if it may."""
    left = {known: profile for known, profile in group.profiles.items() if known not in member_ids}
    if goes_back(group, left.values(), shard.config):
        owned = {known: group.progress_of(known).held_partitions for known in left}
        downgrade(shard, group, classic_group(group, left, owned, shard.topics), turn)
        return
    for change in remove(group, member_ids, shard.topics):
        turn.write(change)

    def departed(now: GroupTurn) -> None:
        for member_id in member_ids:
            sessions.end(group.group_id, member_id, now)

    turn.on_appended = departed


def remove(group: ConsumerGroup, member_ids: Collection[str], topics: TopicsView) -> list[ConsumerGroupChange]:
    """Members are gone: forget them, and have what they owned dealt to others from the next heartbeat on."""
    left = {known: profile for known, profile in group.profiles.items() if known not in member_ids}
    changes = [change for member_id in member_ids for change in removal_of(group, member_id)]
    changes += unused(group, left.values())
    metadata_hash = hash_of_topics(group.wanted_topics(left.values()), topics)
    changes.append(EpochChange(group.group_id, (group.epoch + 1, metadata_hash)))
    return changes


def time_over(shard: GroupShard, group: ConsumerGroup, key: TimerKey, turn: GroupTurn) -> None:
    """A member was silent for too long, or holds on to what it had to give up, or did not join or sync: it is none any
    more."""
    why = _reproach(group, key)
    if why is None:
        return
    turn.note(f"group {group.group_id!r}: member {key.member_id} {why}")
    depart(shard, group, [key.member_id], turn)

    def not_removed(_error: Exception, later: GroupTurn) -> None:
        if not turn.appended:  # it is still there, and must not stay for ever
            later.timers.schedule(key, later.at.now + _AGAIN_SECONDS)

    turn.on_failed = not_removed


def _reproach(group: ConsumerGroup, key: TimerKey) -> str | None:
    """What the member did wrong by the time that its deadline passed; None for nothing."""
    profile = group.profiles.get(key.member_id)
    if profile is None:
        return None
    if key.kind == sessions.SESSION:
        return "was silent for too long"
    if profile.classic is None:
        holds_on = group.progress_of(key.member_id).state is MemberState.UNREVOKED_PARTITIONS
        return "did not give up its partitions in time" if key.kind == sessions.REVOCATION and holds_on else None
    return {sessions.JOIN: "did not join again in time", sessions.SYNC: "did not sync in time"}.get(key.kind)
