"""Numbers of groups and offsets, counted on request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.consumer_group.consumer_group import ConsumerGroupState
from triokafka.coordinator.group.group_shard import GroupShard


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
