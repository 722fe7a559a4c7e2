"""Removal of committed offsets on deleted topics, in bounded batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final
from uuid import UUID

from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.records import NO_TOPIC_ID, GroupEffects, OffsetChange, OffsetKey
from triokafka.coordinator.runtime.timer_queue import TimerKey

FORGET: Final = "forget"
_KEY: Final = TimerKey(FORGET)
MAX_RECORDS: Final = 1_000
"""Tombstones per append: the batch must stay below the log's maximum batch size."""
PAUSE: Final = 0.01
"""Seconds between two batches, so that requests can run in between."""


def schedule(effects: GroupEffects) -> None:
    """Schedule the next batch after `PAUSE`."""
    effects.timers.schedule(_KEY, effects.at.now + PAUSE)


def forget(shard: GroupShard, effects: GroupEffects) -> None:
    """Write tombstones for committed offsets on deleted topics.

    If the append fails, the next scan for expired offsets tries again. A recreated topic of the same name has another
    id, and its offsets stay.
    """
    gone = dict(shard.deleted_topics)
    if not gone:
        return
    for key in _positions_on(shard, gone):
        if len(effects.records) >= MAX_RECORDS:
            schedule(effects)
            effects.on_failed = lambda error, later: later.timers.cancel(_KEY)
            return
        effects.write(OffsetChange(key, None))

    def forgotten(_later: GroupEffects) -> None:
        for topic_id in gone:
            shard.deleted_topics.pop(topic_id, None)

    if effects.records:
        effects.on_committed = forgotten
    else:
        forgotten(effects)


def _positions_on(shard: GroupShard, gone: Mapping[UUID, str]) -> Iterator[OffsetKey]:
    for group_id in shard.offsets.groups():
        for name in dict.fromkeys(gone.values()):
            for partition, position in shard.offsets.newest_partitions(group_id, name).items():
                if position.topic_id == NO_TOPIC_ID or position.topic_id in gone:
                    yield OffsetKey(group_id, name, partition)
    if shard.offsets.pending:
        names = set(gone.values())
        for key in shard.offsets.pending:
            if key.topic in names and shard.offsets.newest_one(key) is None:
                yield key
