"""What the coordinator has done since it was made, and what it holds now.

Counters are kept where the work is done; what can be looked up is counted when somebody asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from triokafka.coordinator.consumer_group.group import ConsumerGroupState
from triokafka.coordinator.group.state import GroupState

if TYPE_CHECKING:
    from triokafka.coordinator.shard import GroupShard


@dataclass(slots=True)
class GroupCounters:
    """How often what happened, since the coordinator was made. Positions count one by one."""

    offset_commits: int = 0
    offset_expirations: int = 0
    offset_deletions: int = 0
    completed_rebalances: int = 0
    """Rounds of classic groups of which the assignment was stored."""
    consumer_group_rebalances: int = 0
    """Epochs that consumer groups have entered."""


class GroupCounts(NamedTuple):
    """How many groups are in which state, and how many positions are kept, in all shards here."""

    classic: Mapping[GroupState, int]
    consumer: Mapping[ConsumerGroupState, int]
    offsets: int


def count_groups(shards: Iterable[GroupShard]) -> GroupCounts:
    """Count what the shards hold, by their newest state."""
    classic: Counter[GroupState] = Counter(dict.fromkeys(GroupState, 0))
    consumer: Counter[ConsumerGroupState] = Counter(dict.fromkeys(ConsumerGroupState, 0))
    offsets = 0
    for shard in shards:
        classic.update(group.state for group in shard.groups.values())
        consumer.update(group.state for group in shard.consumer_groups.values())
        offsets += len(shard.offsets)
    return GroupCounts(classic, consumer, offsets)
