"""OffsetDelete: removal of committed offsets on request (KIP-496)."""

from __future__ import annotations

from triokafka.coordinator.classic_group.classic_group import ClassicGroup
from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.records import GroupEffects, OffsetChange, OffsetKey
from triokafka.coordinator.group.topics_view import TopicFilter, TopicsView, any_topic
from triokafka.coordinator.runtime.reply import Reply
from triokafka.errors import (
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    NonEmptyGroupError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from triokafka.protocol.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def delete_offsets(
    shard: GroupShard,
    request: OffsetDeleteRequest,
    reply: Reply[OffsetDeleteResponse],
    topics: TopicsView,
    effects: GroupEffects,
    may_read: TopicFilter = any_topic,
) -> None:
    """Remove committed offsets, except those of subscribed topics. Removing an offset that does not exist succeeds.

    Raises:
        GroupIdNotFoundError: the group does not exist.
        NonEmptyGroupError: the group has members that are not consumers, so their subscriptions are unknown.
    """
    group = shard.consumer_groups.get(request.group_id) or shard.groups.get(request.group_id)
    if group is None or group.state is GroupState.DEAD:
        raise GroupIdNotFoundError(f"group {request.group_id!r} does not exist")
    if isinstance(group, ClassicGroup) and group.state is not GroupState.EMPTY and not group.uses_consumer_protocol:
        raise NonEmptyGroupError(f"group {request.group_id!r} has members of type {group.protocol_type!r}")
    response = OffsetDeleteResponse()
    for topic in request.topics:
        may_be_read, is_wanted = may_read(topic.name), group.subscribes_to(topic.name)
        count = topics.partition_count(topic.name)
        there = shard.offsets.newest_partitions(request.group_id, topic.name)
        answered = OffsetDeleteResponseTopic(name=topic.name)
        for partition in topic.partitions:
            index, error_code = partition.partition_index, 0
            key = OffsetKey(request.group_id, topic.name, index)
            if not may_be_read:
                error_code = TopicAuthorizationFailedError.code
            elif not 0 <= index < count:  # Kafka checks this before it calls the group
                error_code = UnknownTopicOrPartitionError.code
            elif is_wanted:
                error_code = GroupSubscribedToTopicError.code
            elif index in there or key in shard.offsets.pending:
                effects.write(OffsetChange(key, None))
            answered.partitions.append(OffsetDeleteResponsePartition(partition_index=index, error_code=error_code))
        response.topics.append(answered)
    shard.counters.offset_deletions += len(effects.records)
    effects.answer(reply, response)
