"""Random schedules of offsets committed in transactions (KIP-447), against the state in the log.

The records come from other brokers: this one loads them when it leads again, and continues with its own commits,
removals and expiry. In every schedule the last written of several commits of an offset counts, once its transaction has
committed and never if it aborts; a removal leaves nothing pending; and an offset that an open transaction may change is
unstable for fetches, does not expire, and keeps its group alive.
"""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar

import pytest

from tests.property.coordinator_life import CoordinatorLife, CountedReply, code, watched
from tests.property.lives import Draw, survive
from tests.support.in_steps import done
from tests.unit.coordinator.rig import PARTITION, ScriptedLog
from tests.unit.coordinator.test_transactional_offsets import UNSTABLE
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.records import CommittedOffset, GroupEffects, OffsetChange, OffsetKey, decode, encode
from triokafka.coordinator.offsets import fetch as fetches
from triokafka.coordinator.runtime.coordinator_log import CoordinatorRecord, TransactionEnd
from triokafka.coordinator.runtime.reply import Reply
from triokafka.protocol.api.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)

GROUPS = ("a", "b")
PRODUCERS = (7_000, 7_001, 7_002)
KEYS = [OffsetKey(group_id, topic, number) for group_id in GROUPS for topic in ("orders", "bills") for number in (0, 1)]
RETENTION, CHECK = 120.0, 30.0


Positions = dict[OffsetKey, CommittedOffset]

decoded = lru_cache(1_000)(decode)
"""The log is read again and again."""


def state_in_log(log: ScriptedLog, end: int) -> tuple[Positions, set[OffsetKey]]:
    """Return the state in the log up to ``end``: offsets, and those that open transactions may change."""
    counting: dict[OffsetKey, dict[int, CommittedOffset]] = {key: {} for key in KEYS}
    open_ones: dict[int, dict[OffsetKey, tuple[int, CommittedOffset]]] = {producer: {} for producer in PRODUCERS}
    for offset, record in enumerate(log.records.get(PARTITION, [])[:end]):
        marker = log.markers.get((PARTITION, offset))
        if marker is not None:
            ended, open_ones[marker.producer_id] = open_ones[marker.producer_id], {}
            for key, (written_at, value) in ended.items() if marker.commits else ():
                counting[key][written_at] = value
            continue
        change = decoded(*record)
        if not isinstance(change, OffsetChange):
            continue
        if change.value is None:
            counting[change.key].clear()
            for pending in open_ones.values():
                pending.pop(change.key, None)
        elif (PARTITION, offset) in log.producers:
            open_ones[log.producers[PARTITION, offset]][change.key] = offset, change.value
        else:
            counting[change.key][offset] = change.value
    positions = {key: values[max(values)] for key, values in counting.items() if values}
    return positions, {key for pending in open_ones.values() for key in pending}


class TransactionLife(CoordinatorLife):
    """One shard, the other brokers that lead its partition in between, and the operations on its offsets."""

    LONGEST_WAIT = 25.0
    STEPS: ClassVar = {
        "another_broker_writes": 12,
        "commit": 8,
        "delete_offsets": 3,
        "delete_group": 2,
        "pass_time": 6,
        "restart": 3,
        "appends_fail": 3,
        "commits_lag_or_not": 4,
        "high_watermark_moves": 5,
    }

    def __init__(self, draw: Draw) -> None:
        self.number = 0
        self.calm_since = 0.0
        self.begin(
            offsets_retention_minutes=round(RETENTION / 60),
            offsets_retention_check_interval_ms=round(CHECK * 1000),
        )

    NEW_LOG = ScriptedLog

    def begin(self, **config: int) -> None:
        super().begin(**config)
        self.log = self.rig.log
        self.calm_since = self.now

    @property
    def end(self) -> int:
        return len(self.log.records.get(PARTITION, ()))

    # --- steps ---

    def another_broker_writes(self, draw: Draw) -> None:
        """Another broker leads for a while: it commits, in transactions and outside, ends some, and removes
        an offset.
        """
        self._move_away(None)
        if draw.one_in(3):
            self._lose_uncommitted()
        self.log.fails_with = None
        for _ in range(draw.of((1, 2, 3, 6))):
            action, key, producer = draw.below(8), draw.of(KEYS), draw.of(PRODUCERS)
            if action == 0:
                self._write(encode(OffsetChange(key, None)))
            elif action == 1:
                self._write(encode(OffsetChange(key, self._position())))
            elif action < 5:
                at = self._write(encode(OffsetChange(key, self._position())))
                self.log.producers[PARTITION, at] = producer
            else:
                self._end(producer, commits=action != 5)
        self._come_back()

    def _position(self) -> CommittedOffset:
        self.number += 1
        return CommittedOffset(self.number, -1, "", self.rig.world.wall_ms())

    def _write(self, record: CoordinatorRecord) -> int:
        return self.log.append(PARTITION, [record], 0) - 1  # type: ignore[no-any-return]

    def _end(self, producer: int, *, commits: bool) -> None:
        at = self._write(CoordinatorRecord(b"", None))
        self.log.markers[PARTITION, at] = TransactionEnd(producer, at, commits)

    def _come_back(self) -> None:
        self._lead(1)
        self.rig.runtime.load_all()
        assert self.is_here
        self.loaded()

    def commit(self, draw: Draw) -> None:
        key = draw.of(KEYS)
        self.number += 1
        self.rig.commit(offsets={(key.topic, key.partition): self.number}, group_id=key.group_id)

    def delete_offsets(self, draw: Draw) -> None:
        key = draw.of(KEYS)
        reply = self.rig.delete_offsets((key.topic, key.partition), group_id=key.group_id)
        if reply.is_set and code(reply) == 0:
            positions, pending = state_in_log(self.log, self.end)
            assert key not in positions and key not in pending

    def delete_group(self, draw: Draw) -> None:
        group_id = draw.of(GROUPS)
        reply = self.rig.delete_group(group_id)
        if reply.is_set and code(reply) == 0:
            positions, pending = state_in_log(self.log, self.end)
            assert group_id not in {key.group_id for key in (*positions, *pending)}

    def pass_time(self, draw: Draw) -> None:
        """Expired offsets are removed, and no others; none that an open transaction may change."""
        seconds = draw.of((1.0, 20.0, 45.0, 130.0))
        (positions, pending), before = state_in_log(self.log, self.end), self.end
        if self.log.will_fail or not self.log.commits_at_once:
            self.calm_since = self.now + seconds
        self.let_pass(seconds)
        for offset in range(before, self.end):
            change = decoded(*self.log.records[PARTITION][offset])
            if isinstance(change, OffsetChange):
                assert change.value is None and change.key not in pending, f"{change} follows from no request"
                assert positions[change.key].commit_timestamp + RETENTION * 1000 <= self.rig.world.wall_ms()

    def restart(self, draw: Draw) -> None:
        self._move_away(None)
        if draw.one_in(2):
            self._lose_uncommitted()
        self._come_back()

    # --- the invariants ---

    def follow_log(self) -> None:
        """Do nothing: the log is read again each time."""

    def loaded(self) -> None:
        self.calm_since = self.now

    def check_shard(self, shard: GroupShard) -> None:
        newest, pending = state_in_log(self.log, self.end)
        assert {key: value for name in GROUPS for key, value in shard.offsets.newest(name)} == newest
        assert set(shard.offsets.pending) == pending
        assert shard.groups.keys() == {key.group_id for key in (*newest, *pending)}
        visible, _ = state_in_log(self.log, self.log.high_watermark(PARTITION))
        for name in GROUPS:
            shown = {
                OffsetKey(name, topic.name, found.partition_index): found.committed_offset
                for topic in self.rig.fetch(group_id=name).topics
                for found in topic.partitions
            }
            assert shown == {key: value.offset for key, value in visible.items() if key.group_id == name}
        assert {group.group_id for group in self.rig.list_groups()} == {key.group_id for key in visible}
        if self.log.high_watermark(PARTITION) == self.end:
            self._check_stable(newest, pending)
        for key, value in newest.items():
            expired_since = value.commit_timestamp / 1000 + RETENTION - self.rig.world.wall_ms() / 1000 + self.now
            overdue = self.now - max(expired_since, self.calm_since)
            assert key in pending or overdue <= 2 * CHECK + 1, f"{key} expired {overdue:g} seconds ago"

    def _check_stable(self, newest: Positions, pending: set[OffsetKey]) -> None:
        for name in GROUPS:
            keys = [key for key in KEYS if key.group_id == name]
            one_by_one = self._stable(name, keys)
            for key in keys:
                expected = (-1, UNSTABLE) if key in pending else (newest[key].offset if key in newest else -1, 0)
                assert one_by_one[key] == expected, key
            assert self._stable(name, None) == {key: one_by_one[key] for key in keys if key in newest}

    def _stable(self, group_id: str, keys: list[OffsetKey] | None) -> dict[OffsetKey, tuple[int, int]]:
        topics = keys and [OffsetFetchRequestTopics(name=k.topic, partition_indexes=[k.partition]) for k in keys]  # type: ignore[misc]
        asked = OffsetFetchRequestGroup(group_id=group_id, topics=topics)  # type: ignore[arg-type]

        def fetch(shard: GroupShard, effects: GroupEffects, reply: Reply[OffsetFetchResponseGroup]) -> None:
            effects.answer(reply, done(fetches.fetch_group(shard, asked, 8, self.rig.topics, stable=True)))

        found = self.rig.ask(fetch, CountedReply(self.now)).value
        return {
            OffsetKey(group_id, topic.name, one.partition_index): (one.committed_offset, one.error_code)
            for topic in found.topics
            for one in topic.partitions
        }

    def finish(self) -> None:
        """All transactions end; then no unused offset remains."""
        self.end_faults()
        self._move_away(None)
        for producer in PRODUCERS:
            self._end(producer, commits=producer % 2 == 0)
        self._come_back()
        self.check()
        self.let_pass(RETENTION + 2 * CHECK + 20)
        self.check()
        assert state_in_log(self.log, self.end) == ({}, set()) and not self.rig.shard.groups
        self.check_all_answered()


def test_transactional_offsets_survive_random_schedules() -> None:
    """Fetches return committed offsets in the order of writing; the module's docstring has all invariants."""
    with watched():
        survive(TransactionLife, range(200))


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_transactional_positions_survive_very_many_random_lives() -> None:
    """The same, for as long as the long run takes."""
    with watched():
        survive(TransactionLife, range(20_000))
