"""Expiry of committed offsets, and of empty groups without offsets (KIP-211).

The age of an offset counts from the moment the group became empty, or from the commit if that is later. It counts from
the commit alone while the group has members but none subscribes to the topic, and for groups without a protocol type. A
commit with its own retention time keeps that time. An empty group without offsets is removed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from triokafka.coordinator.classic_group.classic_group import ClassicGroup
from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.classic_group.stored_group import group_removal
from triokafka.coordinator.consumer_group.consumer_group import ConsumerGroup
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.records import CommittedOffset, GroupEffects, OffsetChange
from triokafka.coordinator.offsets.deleted_topics import MAX_RECORDS, PAUSE

_SCAN_STEP: Final = 1_000
"""Offsets per scan step, approximately: all shards of a broker may scan at the same time while requests wait."""


def expire(shard: GroupShard, effects: GroupEffects) -> float | None:
    """Write tombstones for expired offsets. Scans a large shard in steps.

    Returns the seconds until the next step, and None when the scan is complete. If the append fails, the next scan
    starts anew.
    """
    left = shard.unscanned_groups
    if not left:
        left += [*shard.groups, *shard.consumer_groups]
        left.reverse()  # popped from the end, in the order of the groups
    looked_at = 0
    while left and looked_at < _SCAN_STEP:
        group = shard.groups.get(left[-1]) or shard.consumer_groups.get(left[-1])
        looked_at += 1 if group is None else 1 + _expire_group(shard, group, effects)
        if len(effects.records) >= MAX_RECORDS:
            break  # the next step continues with this group
        left.pop()
    if not left:
        return None
    effects.on_failed = lambda error, later: left.clear()
    return PAUSE


def _expire_group(shard: GroupShard, group: ClassicGroup | ConsumerGroup, effects: GroupEffects) -> int:
    """Write tombstones for one group's expired offsets; returns the number of offsets scanned."""
    age_of = _age_counts_from(group)
    if age_of is None:
        return 0
    retention_ms = shard.config.offsets_retention_minutes * 60_000
    # Computed once: asking the group per offset would take time linear in its members each time.
    wanted = group.wanted_topics() if isinstance(group, ConsumerGroup) else None
    all_expired = True
    looked_at = 0
    for key, committed in shard.offsets.newest(group.group_id):
        if len(effects.records) >= MAX_RECORDS:
            return looked_at
        looked_at += 1
        is_wanted = group.subscribes_to(key.topic) if wanted is None else key.topic in wanted
        expired = not is_wanted and _is_expired(committed, age_of, retention_ms, effects.at.wall_ms)
        if expired and key not in shard.offsets.pending:
            effects.write(OffsetChange(key, None))
            shard.counters.offset_expirations += 1
        else:
            all_expired = False
    if not all_expired or shard.offsets.has_pending(group.group_id):
        return looked_at
    if isinstance(group, ConsumerGroup):
        if not group.profiles:
            effects.write(*group.removal())
    elif group.state is GroupState.EMPTY and not group.pending_members:
        effects.write(group_removal(group.group_id))
    return looked_at


def _age_counts_from(group: ClassicGroup | ConsumerGroup) -> Callable[[CommittedOffset], int] | None:
    """Return the function from an offset to the start of its age (ms); None when the group's offsets do not age."""
    if isinstance(group, ConsumerGroup) or group.protocol_type is None:
        return lambda committed: committed.commit_timestamp
    if group.state is GroupState.EMPTY:
        # Not from the state alone: an offset set for a group that has long been empty would expire within minutes.
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
