"""Members leave a consumer group, permanently or temporarily, or are removed (KIP-848)."""

from __future__ import annotations

from collections.abc import Collection

from triokafka.coordinator.consumer_group import timers
from triokafka.coordinator.consumer_group.advance import removal_of
from triokafka.coordinator.consumer_group.consumer_group import ConsumerGroup
from triokafka.coordinator.consumer_group.group_epoch import hash_of_topics
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
from triokafka.coordinator.runtime.reply import Reply
from triokafka.errors import GroupIdNotFoundError
from triokafka.protocol.api.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def leave(
    shard: GroupShard,
    request: ConsumerGroupHeartbeatRequest,
    reply: Reply[ConsumerGroupHeartbeatResponse],
    effects: GroupEffects,
) -> None:
    """Handle a member's last heartbeat. A static member that leaves temporarily keeps its part of the assignment.

    Raises:
        GroupIdNotFoundError: the group does not exist.
        UnknownMemberIdError: the group has no such member or instance.
        FencedInstanceIdError: another member now has the instance id.
    """
    group, member_id = shard.consumer_groups.get(request.group_id), request.member_id
    if group is None:
        raise GroupIdNotFoundError(f"consumer group {request.group_id!r} does not exist")
    group.requesting_member(member_id, request.instance_id)
    if request.member_epoch == LEAVING_FOR_NOW:
        progress = group.progress_of(member_id)._replace(epoch=LEAVING_FOR_NOW, state=MemberState.STABLE, revoking={})
        effects.write(ProgressChange(group.group_id, member_id, progress))
    else:
        depart(shard, group, [member_id], effects)
    effects.answer(reply, ConsumerGroupHeartbeatResponse(member_id=member_id, member_epoch=request.member_epoch))


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
            timers.end(group.group_id, member_id, now)

    effects.on_appended = departed


def remove(group: ConsumerGroup, member_ids: Collection[str], topics: TopicsView) -> list[ConsumerGroupChange]:
    """Return the changes that remove members and start a new epoch, in which others get their partitions."""
    leaving = [group.profiles[member_id] for member_id in member_ids]
    changes = [change for member_id in member_ids for change in removal_of(group, member_id)]
    changes += [PatternChange(group.group_id, pattern, None) for pattern in group.unused_patterns(without=leaving)]
    metadata_hash = hash_of_topics(group.wanted_topics(without=leaving), topics)
    changes.append(EpochChange(group.group_id, (group.epoch + 1, metadata_hash)))
    return changes
