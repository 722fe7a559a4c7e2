"""What follows from a deleted topic: positions on it are removed, a part now and the rest soon after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final
from uuid import UUID

from triokafka.coordinator.stored import NO_TOPIC_ID, GroupTurn, OffsetChange, OffsetKey
from triokafka.coordinator.timers import TimerKey

if TYPE_CHECKING:
    from triokafka.coordinator.shard import GroupShard

FORGET: Final = "forget"
_KEY: Final = TimerKey(FORGET)
MAX_RECORDS: Final = 1_000
"""Tombstones per append: a batch must stay below the largest one that the log takes."""
PAUSE: Final = 0.01
"""Seconds until the rest is written, for requests to come in between."""


def topics_deleted(shard: GroupShard, topics: Mapping[UUID, str], turn: GroupTurn) -> None:
    """Topics are gone: positions on them mean nothing any more."""
    shard.deleted_topics.update(topics)
    forget(shard, turn)


def schedule(turn: GroupTurn) -> None:
    """Go on in a moment, in a turn of its own."""
    turn.timers.schedule(_KEY, turn.at.now + PAUSE)


def forget(shard: GroupShard, turn: GroupTurn) -> None:
    """Write tombstones for positions on deleted topics.

    When they cannot be written, the next look for expired positions tries again. A topic that was made anew under the
    name of a deleted one has another id, and keeps its positions.
    """
    gone = dict(shard.deleted_topics)
    if not gone:
        return
    for key in _positions_on(shard, gone):
        if len(turn.records) >= MAX_RECORDS:
            schedule(turn)
            turn.on_failed = lambda error, later: later.timers.cancel(_KEY)
            return
        turn.write(OffsetChange(key, None))

    def forgotten(_later: GroupTurn) -> None:
        for topic_id in gone:
            shard.deleted_topics.pop(topic_id, None)

    if turn.records:
        turn.on_committed = forgotten
    else:
        forgotten(turn)


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
