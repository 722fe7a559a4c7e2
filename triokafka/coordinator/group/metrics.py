"""Metrics of the group coordinator.

Counters are incremented where the work is done. Group and offset totals are counted on request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.consumer_group.consumer_group import ConsumerGroupState

if TYPE_CHECKING:
    from triokafka.coordinator.group.group_shard import GroupShard


@dataclass(slots=True)
class GroupCounters:
    """Event counters since the coordinator was created. Offsets count once per partition."""

    offset_commits: int = 0
    offset_expirations: int = 0
    offset_deletions: int = 0
    completed_rebalances: int = 0
    """Rebalances of classic groups whose assignment was stored."""
    consumer_group_rebalances: int = 0
    """Epoch bumps of consumer groups."""


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
