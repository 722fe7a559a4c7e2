"""Numbers of groups and offsets, counted on request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.consumer_group.consumer_group import ConsumerGroupState
from triokafka.coordinator.group.group_shard import GroupShard


class GroupPositions(NamedTuple):
    """The committed offsets of one group by topic and partition, and its number of members."""

    group_id: str
    members: int
    offsets: Mapping[str, Mapping[int, int]]


def group_positions(shards: Iterable[GroupShard]) -> Iterator[GroupPositions]:
    """Yield every group with committed offsets or members."""
    for shard in shards:
        names = dict.fromkeys([*shard.offsets.groups(), *shard.groups, *shard.consumer_groups])
        for group_id in names:
            classic, consumer = shard.groups.get(group_id), shard.consumer_groups.get(group_id)
            members = len(classic.members) if classic is not None else len(consumer.profiles) if consumer else 0
            offsets = {
                topic: {partition: committed.offset for partition, committed in partitions.items()}
                for topic, partitions in shard.offsets.read_group(group_id).items()
            }
            yield GroupPositions(group_id, members, offsets)


class GroupCounts(NamedTuple):
    """Number of groups per state and number of committed offsets, over all shards of this broker."""

    classic: Mapping[GroupState, int]
    consumer: Mapping[ConsumerGroupState, int]
    offsets: int


def count_groups(shards: Iterable[GroupShard]) -> GroupCounts:
    """Count the groups and offsets of the shards, by their newest (possibly uncommitted) state."""
    classic: Counter[GroupState] = Counter(dict.fromkeys(GroupState, 0))
    consumer: Counter[ConsumerGroupState] = Counter(dict.fromkeys(ConsumerGroupState, 0))
    offsets = 0
    for shard in shards:
        classic.update(group.state for group in shard.groups.values())
        consumer.update(group.state for group in shard.consumer_groups.values())
        offsets += len(shard.offsets)
    return GroupCounts(classic, consumer, offsets)
