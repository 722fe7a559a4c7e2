"""Random schedules of committed offsets, against a model that predicts the records of each request.

Groups without members, with classic consumers, with members of other protocol types, and under the consumer protocol
commit; tools remove offsets, groups and topics; time passes; the log fails, lags, loses its end and is compacted. In
every schedule the log has exactly the records of the model, fetches and lists return exactly the committed state, no
acknowledged commit is lost, and offsets that expire by KIP-211 are removed in time, and not before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple
from uuid import UUID

import pytest

from tests.property.coordinator_life import CoordinatorLife, CountedReply, code, watched
from tests.property.lives import Draw, survive
from tests.unit.coordinator.rig import PARTITION, subscription
from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.consumer_group.heartbeat import Beat
from triokafka.coordinator.consumer_group.records import EpochChange
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.records import (
    NO_TOPIC_ID,
    Change,
    CommittedOffset,
    GroupChange,
    OffsetChange,
    OffsetKey,
)
from triokafka.coordinator.runtime.coordinator_log import CoordinatorRecord

SIMPLE, CONSUMERS, WORKERS, MODERN = GROUPS = ("simple", "consumers", "workers", "modern")
TOPICS = ("orders", "bills", "odds")
PARTITIONS = 4
RETENTION = 120.0
CHECK = 30.0
FOREVER_MS = 100_000_000
METADATA_LIMIT = 16
TOO_LARGE, UNKNOWN_TOPIC, SUBSCRIBED, NOT_EMPTY = 12, 3, 86, 68


class PendingRequest(NamedTuple):
    """A request whose records are in the log, up to ``end``; ``lost`` if they are cut off before its response."""

    reply: CountedReply
    end: int


class OffsetLife(CoordinatorLife):
    """One shard, and the operations of clients and tools on its offsets."""

    LONGEST_WAIT = 25.0
    STEPS: ClassVar = {
        "commit": 20,
        "a_member_comes": 6,
        "members_leave": 4,
        "delete_offsets": 5,
        "delete_group": 3,
        "delete_a_topic": 3,
        "make_a_topic": 2,
        "fetch": 4,
        "pass_time": 12,
        "appends_fail": 4,
        "commits_lag_or_not": 4,
        "high_watermark_moves": 6,
        "coordinator_restarts": 4,
        "leadership_moves_away": 1,
        "leadership_comes": 1,
        "some_of_the_log_is_read": 4,
        "late_news_of_leadership": 1,
        "log_cannot_be_read": 1,
    }

    def __init__(self, draw: Draw) -> None:
        self.number = 0
        self.expected: list[OffsetChange] | None = None
        self.asked: list[PendingRequest] = []
        self.members: dict[str, str] = {}
        self.deleted: dict[UUID, str] = {}
        self.changed_at: dict[OffsetKey, float] = {}
        self.begin(
            group_initial_rebalance_delay_ms=0,
            group_consumer_session_timeout_ms=FOREVER_MS,
            offset_metadata_max_bytes=METADATA_LIMIT,
            offsets_retention_minutes=round(RETENTION / 60),
            offsets_retention_check_interval_ms=round(CHECK * 1000),
        )
        append = self.rig.log.append

        def timed(partition: int, records: Sequence[CoordinatorRecord], timestamp_ms: int) -> int:
            end = append(partition, records, timestamp_ms)
            del self.times[end - len(records) :]
            self.times.extend([timestamp_ms] * len(records))
            return end  # type: ignore[no-any-return]

        self.rig.log.append = timed

    def begin(self, **config: int) -> None:
        self.times: list[int] = []
        super().begin(**config)
        self.calm_since = self.now
        self.failures_left: int | None = None
        self.empty_since: dict[str, int] = {}
        """No later than when each group became empty."""
        self.looked: dict[str, object] = {}
        self.changed_group_at: dict[str, float] = {}
        """When the state that retains the offsets of a group was last seen to change."""
        self.wall_before = self.wall_ms

    @property
    def wall_ms(self) -> int:
        return self.rig.world.wall_ms()

    # --- steps ---

    def commit(self, draw: Draw) -> None:
        """Commit some offsets at once, with and without all optional fields."""
        group_id = draw.of(GROUPS)
        retention_ms = draw.of((-1, -1, -1, 40_000))
        metadata = draw.of(("", "note", None, "x" * (METADATA_LIMIT + 1)))
        leader_epoch = draw.of((-1, 7))
        offsets: dict[tuple[str, int], int] = {}
        for topic in draw.some(TOPICS) or ["bills"]:
            self.number += 1
            offsets[topic, draw.below(PARTITIONS)] = self.number
        identity = self._speaker(group_id)
        fits = metadata is None or len(metadata) <= METADATA_LIMIT
        expire = self.wall_ms + retention_ms if retention_ms >= 0 else -1
        ids = self.rig.topics.ids
        self.expected = [
            OffsetChange(
                OffsetKey(group_id, topic, number),
                CommittedOffset(offset, leader_epoch, metadata or "", self.wall_ms, expire, ids[topic])
                if expire < 0
                else CommittedOffset(offset, -1, metadata or "", self.wall_ms, expire, NO_TOPIC_ID),
            )
            for (topic, number), offset in offsets.items()
            if topic in ids and fits
        ]
        written = len(self.rig.log.records.get(PARTITION, ()))
        reply: Any = self.rig.commit(
            offsets=offsets,
            group_id=group_id,
            metadata=metadata,
            leader_epoch=leader_epoch,
            retention_ms=retention_ms,
            version=9 if retention_ms < 0 else 4,
            **identity,
        )
        self._asked(reply, written)

    def _speaker(self, group_id: str) -> dict[str, Any]:
        if not self.is_here or group_id not in self.members:
            return {}
        shard = self.rig.shard
        member_id = self.members[group_id]
        group = shard.groups.get(group_id)
        if group is not None and member_id in group.members:
            return {"member_id": member_id, "generation": group.generation}
        modern = shard.consumer_groups.get(group_id)
        if modern is not None and member_id in modern.profiles:
            return {"member_id": member_id, "generation": modern.progress_of(member_id).epoch}
        return {}

    def a_member_comes(self, draw: Draw) -> None:
        """The only active member joins and syncs, or sends its first heartbeat."""
        group_id = draw.of((CONSUMERS, CONSUMERS, WORKERS, MODERN))
        topics = frozenset(draw.some(TOPICS))
        self.expected = []
        if group_id == MODERN:
            self.number += 1
            member_id = self.members.setdefault(group_id, f"m{self.number}")
            self.rig.beat(_first_beat(member_id, topics), group_id=group_id)
            return
        kind = "consumer" if group_id == CONSUMERS else "connect"
        reply = self.rig.join(
            self.members.get(group_id, ""),
            group_id=group_id,
            protocols=[("range", subscription(*sorted(topics)))],
            protocol_type=kind,
            session_ms=FOREVER_MS,
            rebalance_ms=10_000,
        )
        self.rig.pass_time(0)
        if reply.is_set and code(reply) == 0:
            answer = reply.value
            self.members[group_id] = answer.member_id
            self.rig.sync(answer.member_id, answer.generation_id, {answer.member_id: b""}, group_id=group_id)
        elif reply.is_set:
            self.members.pop(group_id, None)

    def members_leave(self, draw: Draw) -> None:
        group_id = draw.of((CONSUMERS, CONSUMERS, WORKERS, MODERN))
        self.expected = []
        if not self.is_here:
            return
        group = self.rig.shard.groups.get(group_id)
        modern = self.rig.shard.consumer_groups.get(group_id)
        if group is not None and group.members:
            self.rig.leave(*group.members, group_id=group_id)
        elif modern is not None:
            for member_id in list(modern.profiles):
                self.rig.last_beat(member_id, group_id=group_id)
        self.members.pop(group_id, None)

    def delete_offsets(self, draw: Draw) -> None:
        """Offsets of subscribed topics are not deleted; the subscriptions of members of other protocol types are
        unknown.
        """
        group_id, keys = draw.of(GROUPS), [(topic, draw.below(PARTITIONS)) for topic in draw.some(TOPICS)]
        written = len(self.rig.log.records.get(PARTITION, ()))
        gone = [OffsetKey(group_id, *key) for key in keys if not self._is_wanted(group_id, key[0], to_delete=True)]
        ids = self.rig.topics.ids
        self.expected = [OffsetChange(key, None) for key in gone if key in self.offsets and key.topic in ids]
        reply: Any = self.rig.delete_offsets(*keys, group_id=group_id)
        self._asked(reply, written)

    def delete_group(self, draw: Draw) -> None:
        group_id = draw.of(GROUPS)
        written = len(self.rig.log.records.get(PARTITION, ()))
        self.expected = [OffsetChange(key, None) for key in self.offsets if key.group_id == group_id]
        has_members = self.is_here and self._has_members(group_id)
        reply: Any = self.rig.delete_group(group_id)
        if has_members:
            assert reply.is_set and code(reply) == NOT_EMPTY
        self._asked(reply, written)

    def delete_a_topic(self, draw: Draw) -> None:
        """The broker is notified, and removes the offsets."""
        name = draw.of(TOPICS)
        topic_id = self.rig.topics.topic_id(name)
        if topic_id is None:
            return
        self.deleted[topic_id] = name
        self.expected = [OffsetChange(key, None) for key, value in self.offsets.items() if self._is_gone(key, value)]
        self.rig.topics.delete(name)
        self.rig.runtime.topics_deleted({topic_id: name})
        if len(self.rig.log.records.get(PARTITION, ())) == self.folded:
            self.expected = None  # it happens later, or never on this broker

    def make_a_topic(self, draw: Draw) -> None:
        self.rig.topics.set(draw.of(TOPICS), PARTITIONS)

    def fetch(self, draw: Draw) -> None:
        """Fetch by name, one by one: an offset that was never committed is -1."""
        if not self.is_here:
            return
        group_id, topic, number = draw.of(GROUPS), draw.of(TOPICS), draw.below(PARTITIONS)
        found = self.rig.fetch((topic, number), group_id=group_id).topics[0].partitions[0]
        value = self.visible.get(OffsetKey(group_id, topic, number))
        if value is None or not self._is_of_this_topic(topic, value):
            assert (found.committed_offset, found.metadata, found.error_code) == (-1, "", 0)
        else:
            assert (found.committed_offset, found.committed_leader_epoch) == (value.offset, value.leader_epoch)
            assert found.metadata == value.metadata

    def pass_time(self, draw: Draw) -> None:
        self.let_pass(draw.of((1.0, 6.0, 20.0, 45.0, 130.0, 400.0)))

    def _asked(self, reply: CountedReply, written: int) -> None:
        """Record the effect of a request: its records or none, and a response once they are committed."""
        end = len(self.rig.log.records.get(PARTITION, ()))
        if end == written:
            self.expected = None
            return
        self.asked.append(PendingRequest(reply, end))

    # --- the model ---

    def _fold_afresh(self) -> None:
        self.visible: dict[OffsetKey, CommittedOffset] = {}
        self.visible_groups: set[str] = set()
        self.seen_up_to = 0
        self.changes: list[Change] = []
        self.refolding = True
        self.expected = None
        super()._fold_afresh()
        self.refolding = False

    def follow_log(self) -> None:
        super().follow_log()
        if self.expected:
            self.expected = None
        high_watermark = self.rig.log.high_watermark(PARTITION)
        for change in self.changes[self.seen_up_to : high_watermark]:
            self._show(change)
        self.seen_up_to = max(self.seen_up_to, min(high_watermark, len(self.changes)))

    def _show(self, change: Change) -> None:
        if isinstance(change, OffsetChange):
            if change.value is None:
                self.visible.pop(change.key, None)
            else:
                self.visible[change.key] = change.value
        elif isinstance(change, (GroupChange, EpochChange)):
            if change.value is None:
                self.visible_groups.discard(change.group_id)
            else:
                self.visible_groups.add(change.group_id)

    def fold(self, change: Change, offset: int) -> None:
        """Check that each record of an offset follows from a request, or is the tombstone of an expired offset."""
        self.changes.append(change)
        if isinstance(change, OffsetChange):
            if not self.refolding:
                if self.expected:
                    assert change in self.expected, f"{change} follows from no request"
                    self.expected.remove(change)
                else:
                    self._check_expired(change, self.times[offset])
            self.changed_at[change.key] = self.now
        elif isinstance(change, GroupChange) and change.value is not None and not self.refolding:
            since, is_empty = change.value.current_state_timestamp, not change.value.members
            assert since == self.times[offset] or not (is_empty and change.value.protocol_type), (
                "the record must have the time when the group became empty"
            )
        super().fold(change, offset)

    def _check_expired(self, change: OffsetChange, wall_ms: int) -> None:
        assert change.value is None, f"{change} follows from no request"
        key = change.key
        value = self.offsets.get(key)
        assert value is not None, f"{key} was removed twice"
        if self._is_gone(key, value):
            return
        assert not self._is_wanted(key.group_id, key.topic), f"a member subscribes to {key}"
        assert wall_ms >= self._expires_at(key, value), f"{key} is removed before it has expired"

    def _is_gone(self, key: OffsetKey, value: CommittedOffset) -> bool:
        """Whether its topic was deleted; only the name can tell if the record has no id."""
        return value.topic_id in self.deleted or (value.topic_id == NO_TOPIC_ID and key.topic in self.deleted.values())

    def _is_of_this_topic(self, topic: str, value: CommittedOffset) -> bool:
        """Whether it was committed for the present topic of the name, as far as the ids can tell."""
        return value.topic_id == NO_TOPIC_ID or self.rig.topics.topic_id(topic) in (None, value.topic_id)

    def _expires_at(self, key: OffsetKey, value: CommittedOffset) -> float:
        if value.expire_timestamp >= 0:
            return value.expire_timestamp
        since = self.empty_since.get(key.group_id, 0) if key.group_id in (CONSUMERS, WORKERS) else 0
        return max(since, value.commit_timestamp) + RETENTION * 1000

    def _is_wanted(self, group_id: str, topic: str, *, to_delete: bool = False) -> bool:
        """Whether members retain offsets of the topic: none expire while the members change."""
        if not self._has_members(group_id):
            return False
        if group_id == WORKERS:
            return True
        if group_id == CONSUMERS:
            group = self.rig.shard.groups.get(group_id)
            if group is None or group.subscription is None:
                return True  # unknown
            if group.state is not GroupState.STABLE and not to_delete:
                return True
            return topic in group.subscription
        modern = self.consumer_groups.get(group_id)
        return modern is not None and any(topic in profile.topic_names for profile in modern.profiles.values())

    def _has_members(self, group_id: str) -> bool:
        if not self.is_here:
            return False
        group, modern = self.rig.shard.groups.get(group_id), self.rig.shard.consumer_groups.get(group_id)
        return bool(group is not None and group.members) or bool(modern is not None and modern.profiles)

    # --- the invariants ---

    def check(self) -> None:
        super().check()
        self.expected = None
        high_watermark = self.rig.log.high_watermark(PARTITION)
        for asked in self.asked:
            if asked.reply.is_set and code(asked.reply) in (0, TOO_LARGE, UNKNOWN_TOPIC, SUBSCRIBED):
                assert high_watermark >= asked.end, "a response was sent before its records were committed"
        self.asked = [asked for asked in self.asked if not asked.reply.is_set]

    def check_shard(self, shard: GroupShard) -> None:
        super().check_shard(shard)
        log = self.rig.log
        if log.will_fail or log.failures_left != self.failures_left or not log.commits_at_once:
            self.calm_since, self.failures_left = self.now, log.failures_left
        for group_id in GROUPS:
            shown = {
                OffsetKey(group_id, topic.name, found.partition_index): found.committed_offset
                for topic in self.rig.fetch(group_id=group_id).topics
                for found in topic.partitions
            }
            assert shown == {
                key: value.offset
                for key, value in self.visible.items()
                if key.group_id == group_id and self._is_of_this_topic(key.topic, value)
            }
            self._note_emptiness(shard, group_id)
        self.wall_before = self.wall_ms
        listed = {group.group_id for group in self.rig.list_groups()}
        assert listed == self.visible_groups | {key.group_id for key in self.visible}
        self._check_nothing_stays()

    def _note_emptiness(self, shard: GroupShard, group_id: str) -> None:
        group = shard.groups.get(group_id)
        if group is None or group.protocol_type is None:
            self.empty_since.pop(group_id, None)
        elif group.state is GroupState.EMPTY:
            self.empty_since.setdefault(group_id, self.wall_before)
        else:
            self.empty_since.pop(group_id, None)
        modern = self.consumer_groups.get(group_id)
        wants = None if modern is None else modern.wanted_topics()
        looks = (None if group is None else (group.state, group.subscription), wants)
        if self.looked.get(group_id) != looks:
            self.looked[group_id], self.changed_group_at[group_id] = looks, self.now

    def _check_nothing_stays(self) -> None:
        """Check that no long-expired offset remains, unless the log prevented its removal."""
        for key, value in self.offsets.items():
            deadline = max(
                self._expires_at(key, value) / 1000 - (self.wall_ms / 1000 - self.now),
                self.calm_since,
                self.changed_group_at.get(key.group_id, 0.0),
                self.changed_at.get(key, 0.0) if value.expire_timestamp < 0 else 0.0,
            )
            overdue = self.now - deadline
            if not self._is_wanted(key.group_id, key.topic) and overdue > 2 * CHECK + 1:
                raise AssertionError(f"{key} has expired {overdue:g} seconds ago, and is there")

    def loaded(self) -> None:
        """The groups are those in the log, which may have lost the latest changes."""
        self.calm_since = self.now
        self.empty_since = {
            group_id: stored.current_state_timestamp
            for group_id, stored in self.stored.items()
            if stored.protocol_type and not stored.members
        }

    def finish(self) -> None:
        self.end_faults()
        self.members_leave_all()
        self.check()
        self.let_pass(RETENTION + 2 * CHECK + 20)
        self.check()
        assert not self.offsets and not self.visible, "unused offsets must be removed"
        assert not self.stored and not self.consumer_groups, "unused groups must be removed"
        self.check_all_answered()

    def members_leave_all(self) -> None:
        for group_id in (CONSUMERS, WORKERS, MODERN):
            while self._has_members(group_id):
                group, modern = self.rig.shard.groups.get(group_id), self.rig.shard.consumer_groups.get(group_id)
                if group is not None and group.members:
                    self.rig.leave(*group.members, group_id=group_id)
                for member_id in list(modern.profiles) if modern is not None else ():
                    self.rig.last_beat(member_id, group_id=group_id)


def _first_beat(member_id: str, topics: frozenset[str]) -> Beat:
    return Beat(
        member_id=member_id,
        member_epoch=0,
        instance_id=None,
        rack_id=None,
        rebalance_timeout_ms=FOREVER_MS,
        topic_names=topics,
        pattern=None,
        server_assignor=None,
        owned={},
        client_id="client",
        client_host="/127.0.0.1",
    )


def test_offset_invariants_hold_in_random_schedules() -> None:
    """Fetches return committed state; acknowledged commits are not lost; expired offsets are removed, and no others."""
    with watched():
        survive(OffsetLife, range(500))


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_offsets_survive_very_many_random_lives() -> None:
    """The same, for as long as the long run takes."""
    with watched():
        survive(OffsetLife, range(20_000))
