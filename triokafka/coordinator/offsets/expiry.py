"""When committed offsets, and groups without any, are forgotten (KIP-211; cluster/GMD-17).

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


def schedule(turn: GroupTurn, config: GroupCoordinatorConfig) -> None:
    """Look again after ``offsets_retention_check_interval_ms``."""
    turn.timers.schedule(_KEY, turn.at.now + config.offsets_retention_check_interval_ms / 1000)


def expire(shard: GroupShard, turn: GroupTurn) -> None:
    """Write tombstones for what has expired; with very much of it, a part now and the rest soon after.

    When they cannot be written, the next regular look tries again.
    """
    groups: list[ClassicGroup | ConsumerGroup] = [*shard.groups.values(), *shard.consumer_groups.values()]
    for group in groups:
        _expire_group(shard, group, turn)
        if len(turn.records) >= MAX_RECORDS:
            turn.timers.schedule(_KEY, turn.at.now + PAUSE)
            turn.on_failed = lambda error, later: schedule(later, shard.config)
            return
    schedule(turn, shard.config)


def _expire_group(shard: GroupShard, group: ClassicGroup | ConsumerGroup, turn: GroupTurn) -> None:
    age_of = _age_counts_from(group)
    if age_of is None:
        return
    retention_ms = shard.config.offsets_retention_minutes * 60_000
    # Asked of the group for every offset, that would take as long as there are members.
    wanted = group.wanted_topics() if isinstance(group, ConsumerGroup) else None
    all_expired = True
    for key, committed in shard.offsets.newest(group.group_id):
        if len(turn.records) >= MAX_RECORDS:
            return
        is_wanted = group.subscribes_to(key.topic) if wanted is None else key.topic in wanted
        expired = not is_wanted and _is_expired(committed, age_of, retention_ms, turn.at.wall_ms)
        if expired and key not in shard.offsets.pending:
            turn.write(OffsetChange(key, None))
            shard.counters.offset_expirations += 1
        else:
            all_expired = False
    if not all_expired or shard.offsets.has_pending(group.group_id):
        return
    if isinstance(group, ConsumerGroup):
        for change in group.removal() if not group.profiles else ():
            turn.write(change)
    elif group.state is GroupState.EMPTY and not group.pending_members:
        turn.write(group_removal(group.group_id))


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
