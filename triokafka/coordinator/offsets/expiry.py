"""When committed offsets, and groups without any, are forgotten (KIP-211).

Offsets of a group count from the moment it became empty, or from their commit if that is later; and from their commit
while the group lives but nobody wants the topic, or when they belong to no group protocol. A commit that asked for a
retention time of its own keeps it. An empty group whose offsets are all gone goes too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from triokafka.coordinator.config import GroupCoordinatorConfig
from triokafka.coordinator.consumer_group.group import ConsumerGroup
from triokafka.coordinator.group.classic import ClassicGroup
from triokafka.coordinator.group.state import GroupState
from triokafka.coordinator.group.stored import group_removal
from triokafka.coordinator.offsets.deleted_topics import MAX_RECORDS, PAUSE
from triokafka.coordinator.stored import CommittedOffset, GroupTurn, OffsetChange
from triokafka.coordinator.timers import TimerKey

if TYPE_CHECKING:
    from triokafka.coordinator.shard import GroupShard

EXPIRY: Final = "expiry"
_KEY: Final = TimerKey(EXPIRY)
_LOOKED_AT_ONCE: Final = 1_000
"""Positions, about; all shards of a broker may look at the same time, and requests wait meanwhile."""


def schedule(turn: GroupTurn, config: GroupCoordinatorConfig) -> None:
    """Look again after ``offsets_retention_check_interval_ms``."""
    turn.timers.schedule(_KEY, turn.at.now + config.offsets_retention_check_interval_ms / 1000)


def expire(shard: GroupShard, turn: GroupTurn) -> None:
    """Write tombstones for what has expired; where there is much to look at, of a part now and of the rest soon after.

    When they cannot be written, the next regular look tries again.
    """
    left = shard.not_looked_at
    if not left:
        left += [*shard.groups, *shard.consumer_groups]
        left.reverse()  # taken from the end, in the order of the groups
    looked_at = 0
    while left and looked_at < _LOOKED_AT_ONCE:
        group = shard.groups.get(left[-1]) or shard.consumer_groups.get(left[-1])
        looked_at += 1 if group is None else 1 + _expire_group(shard, group, turn)
        if len(turn.records) >= MAX_RECORDS:
            break  # and come back to this group
        left.pop()
    if not left:
        schedule(turn, shard.config)
        return
    turn.timers.schedule(_KEY, turn.at.now + PAUSE)
    turn.on_failed = lambda error, later: _give_up(shard, later)


def _give_up(shard: GroupShard, turn: GroupTurn) -> None:
    shard.not_looked_at.clear()
    schedule(turn, shard.config)


def _expire_group(shard: GroupShard, group: ClassicGroup | ConsumerGroup, turn: GroupTurn) -> int:
    """Look at one group's positions; returns how many those were."""
    age_of = _age_counts_from(group)
    if age_of is None:
        return 0
    retention_ms = shard.config.offsets_retention_minutes * 60_000
    # Asked of the group for every offset, that would take as long as there are members.
    wanted = group.wanted_topics() if isinstance(group, ConsumerGroup) else None
    all_expired = True
    looked_at = 0
    for key, committed in shard.offsets.newest(group.group_id):
        if len(turn.records) >= MAX_RECORDS:
            return looked_at
        looked_at += 1
        is_wanted = group.subscribes_to(key.topic) if wanted is None else key.topic in wanted
        expired = not is_wanted and _is_expired(committed, age_of, retention_ms, turn.at.wall_ms)
        if expired and key not in shard.offsets.pending:
            turn.write(OffsetChange(key, None))
            shard.counters.offset_expirations += 1
        else:
            all_expired = False
    if not all_expired or shard.offsets.has_pending(group.group_id):
        return looked_at
    if isinstance(group, ConsumerGroup):
        for change in group.removal() if not group.profiles else ():
            turn.write(change)
    elif group.state is GroupState.EMPTY and not group.pending_members:
        turn.write(group_removal(group.group_id))
    return looked_at


def _age_counts_from(group: ClassicGroup | ConsumerGroup) -> Callable[[CommittedOffset], int] | None:
    """From which moment the age of the group's offsets counts; None when they do not age."""
    if isinstance(group, ConsumerGroup) or group.protocol_type is None:
        return lambda committed: committed.commit_timestamp
    if group.state is GroupState.EMPTY:
        # Not only from the state: a position that was set for a group long empty would be gone within minutes.
        since = group.state_timestamp_ms
        return lambda committed: max(since, committed.commit_timestamp)
    if group.state is GroupState.STABLE and group.uses_consumer_protocol and group.subscription is not None:
        return lambda committed: committed.commit_timestamp
    return None


def _is_expired(
    committed: CommittedOffset, age_of: Callable[[CommittedOffset], int], retention_ms: int, wall_ms: int
) -> bool:
    if committed.expire_timestamp >= 0:
        return wall_ms >= committed.expire_timestamp
    return wall_ms - age_of(committed) >= retention_ms
