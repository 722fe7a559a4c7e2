"""Members that go: for good, for now, because they fell silent, or because they did not give up what they had to."""

from __future__ import annotations

from dataclasses import replace

from triokafka.coordinator.consumer_group.changes import ConsumerGroupChange, EpochChange, ProgressChange
from triokafka.coordinator.consumer_group.group import ConsumerGroup
from triokafka.coordinator.consumer_group.heartbeat import hash_of_topics, removal_of
from triokafka.coordinator.consumer_group.member import LEAVING_FOR_NOW, MemberState
from triokafka.coordinator.consumer_group.patterns import unused
from triokafka.coordinator.topics import TopicsView
from triokafka.errors import FencedInstanceIdError, UnknownMemberIdError


def leave(
    group: ConsumerGroup, member_id: str, instance_id: str | None, member_epoch: int, topics: TopicsView
) -> list[ConsumerGroupChange]:
    """A member's last heartbeat. A static member that leaves for now keeps its part of the assignment.

    Raises:
        UnknownMemberIdError: there is no such member, or no such instance.
        FencedInstanceIdError: the instance is another member by now.
    """
    if instance_id is not None:
        known = group.static_members.get(instance_id)
        if known is None:
            raise UnknownMemberIdError(f"group {group.group_id!r} has no instance {instance_id!r}")
        if known != member_id:
            raise FencedInstanceIdError(f"instance {instance_id!r} is now member {known}, not {member_id}")
    if member_id not in group.profiles:
        raise UnknownMemberIdError(f"group {group.group_id!r} has no member {member_id}")
    if member_epoch == LEAVING_FOR_NOW:
        progress = replace(group.progress_of(member_id), epoch=LEAVING_FOR_NOW, state=MemberState.STABLE, revoking={})
        return [ProgressChange(group.group_id, member_id, progress)]
    return remove(group, [member_id], topics)


def remove(group: ConsumerGroup, member_ids: list[str], topics: TopicsView) -> list[ConsumerGroupChange]:
    """Members are gone: forget them, and have what they owned dealt to others from the next heartbeat on."""
    left = {known: profile for known, profile in group.profiles.items() if known not in member_ids}
    changes = [change for member_id in member_ids for change in removal_of(group, member_id)]
    changes += unused(group, left.values())
    metadata_hash = hash_of_topics(group.wanted_topics(left.values()), topics)
    changes.append(EpochChange(group.group_id, (group.epoch + 1, metadata_hash)))
    return changes
