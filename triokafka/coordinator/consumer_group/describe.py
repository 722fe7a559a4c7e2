"""ConsumerGroupDescribe: a group with its members (KIP-848)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from triokafka.coordinator.consumer_group.consumer_group import ConsumerGroup
from triokafka.coordinator.consumer_group.member import Partitions
from triokafka.coordinator.group.topics_view import TopicsView
from triokafka.protocol.api.consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions

_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1


def describe(group: ConsumerGroup, topics: TopicsView, assignors: Sequence[str]) -> DescribedGroup:
    """Describe the group's current state. ``assignors`` are those that the broker offers. Omits partitions of deleted
    topics."""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.preferred_assignor(group.profiles.values(), assignors),
        members=[_member(group, member_id, topics) for member_id in sorted(group.profiles)],
    )


def _member(group: ConsumerGroup, member_id: str, topics: TopicsView) -> Member:
    profile, progress = group.profiles[member_id], group.progress_of(member_id)
    return Member(
        member_id=member_id,
        instance_id=profile.instance_id,
        rack_id=profile.rack_id,
        member_epoch=progress.epoch,
        client_id=profile.client_id,
        client_host=profile.client_host,
        subscribed_topic_names=sorted(profile.topic_names),
        subscribed_topic_regex=profile.pattern,
        assignment=_named(progress.assigned_partitions, topics),
        target_assignment=_named(group.target_of(member_id), topics),
        member_type=_CONSUMER_MEMBER if profile.classic is None else _CLASSIC_MEMBER,
    )


def _named(partitions: Partitions, topics: TopicsView) -> Assignment:
    found = [(topics.topic_name(topic_id), topic_id, sorted(partitions[topic_id])) for topic_id in sorted(partitions)]
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=name, partitions=numbers)
            for name, topic_id, numbers in found
            if name is not None
        ]
    )
