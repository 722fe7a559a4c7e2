"""Transactional offset commits take effect with the transaction; readers can require stable offsets (KIP-447)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.in_steps import done
from tests.unit.coordinator.rig import PARTITION, TOPIC_IDS, Rig, ScriptedLog, code
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.records import CommittedOffset, GroupEffects, OffsetChange, OffsetKey, encode
from triokafka.coordinator.offsets import fetch as fetches
from triokafka.coordinator.runtime.coordinator_log import (
    CoordinatorRecord,
    TransactionEnd,
)
from triokafka.coordinator.runtime.reply import Reply
from triokafka.errors import GroupIdNotFoundError, UnstableOffsetCommitError
from triokafka.protocol.api.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)

PRODUCER, OTHER_PRODUCER = 7_000, 7_001
UNSTABLE = UnstableOffsetCommitError.code
WEEK = 7 * 24 * 3600.0


class TransactionLog:
    """A log of commits and markers in order; `load` returns a rig whose shard has read all of it."""

    def __init__(self, **config: int) -> None:
        self.log = ScriptedLog()
        self.rig = Rig(self.log, **config)

    def _add(self, record: CoordinatorRecord) -> int:
        return self.log.append(PARTITION, [record], 0) - 1

    def commit(self, offset: int | None, *, producer: int | None = None, partition: int = 0, group: str = "g") -> None:
        value = None if offset is None else CommittedOffset(offset, -1, "", self.rig.world.wall_ms())
        at = self._add(encode(OffsetChange(OffsetKey(group, "orders", partition), value)))
        if producer is not None:
            self.log.producers[PARTITION, at] = producer

    def end(self, producer: int, *, commits: bool) -> None:
        at = self._add(CoordinatorRecord(b"", None))
        self.log.markers[PARTITION, at] = TransactionEnd(producer, at, commits)

    def load(self) -> Rig:
        self.rig.restart()
        return self.rig


def stable_fetch(rig: Rig, *partitions: int) -> Reply[OffsetFetchResponseGroup]:
    """Send OffsetFetch with ``require_stable`` for the given partitions, or for all when none is given."""
    topics = [OffsetFetchRequestTopics(name="orders", partition_indexes=list(partitions))] if partitions else None
    asked = OffsetFetchRequestGroup(group_id="g", topics=topics)

    def fetch(shard: GroupShard, effects: GroupEffects, reply: Reply[OffsetFetchResponseGroup]) -> None:
        effects.answer(reply, done(fetches.fetch_group(shard, asked, 8, rig.topics, stable=True)))

    return rig.ask(fetch, Reply())


def found(reply: Reply[OffsetFetchResponseGroup]) -> list[tuple[int, int, int]]:
    return [
        (p.partition_index, p.committed_offset, p.error_code) for topic in reply.value.topics for p in topic.partitions
    ]


@pytest.mark.parametrize(("commits", "offset"), [(True, 5), (False, 3)])
def test_transactional_offset_takes_effect_on_commit_only(commits: bool, offset: int) -> None:
    story = TransactionLog()
    story.commit(3)
    story.commit(5, producer=PRODUCER)
    story.end(PRODUCER, commits=commits)
    assert story.load().offset() == offset


def test_offset_of_an_open_transaction_is_unstable_for_stable_fetches() -> None:
    """The error is UNSTABLE_OFFSET_COMMIT; other readers see the committed offset."""
    story = TransactionLog()
    story.commit(3)
    story.commit(4, partition=1)
    story.commit(5, producer=PRODUCER)
    story.commit(6, producer=PRODUCER, partition=2)
    rig = story.load()
    assert (rig.offset(), rig.offset(partition=2)) == (3, -1)
    assert found(stable_fetch(rig, 0, 1, 2)) == [(0, -1, UNSTABLE), (1, 4, 0), (2, -1, UNSTABLE)]
    assert found(stable_fetch(rig)) == [(0, -1, UNSTABLE), (1, 4, 0)]
    story.end(PRODUCER, commits=True)
    assert found(stable_fetch(story.load(), 0, 1, 2)) == [(0, 5, 0), (1, 4, 0), (2, 6, 0)]


def test_stable_fetch_waits_until_its_offsets_are_committed() -> None:
    """A reader must not miss the offsets of a transaction that has just ended."""
    rig = Rig()
    rig.commit(offsets={("orders", 0): 1})
    rig.log.commits_at_once = False
    rig.commit(offsets={("orders", 0): 2})
    reply = stable_fetch(rig, 0)
    assert not reply.is_set
    assert rig.offset() == 1
    rig.commit_log()
    assert found(reply) == [(0, 2, 0)]


@pytest.mark.parametrize("marker_first", [True, False])
def test_last_written_commit_wins_in_any_order_of_transaction_ends(marker_first: bool) -> None:
    story = TransactionLog()
    story.commit(10, producer=PRODUCER)
    story.commit(11, producer=OTHER_PRODUCER)
    for producer in (PRODUCER, OTHER_PRODUCER) if marker_first else (OTHER_PRODUCER, PRODUCER):
        story.end(producer, commits=True)
    assert story.load().offset() == 11


def test_commit_outside_transactions_replaces_pending_offsets() -> None:
    story = TransactionLog()
    story.commit(10, producer=PRODUCER)
    story.commit(12)
    rig = story.load()
    assert (rig.offset(), found(stable_fetch(rig, 0))) == (12, [(0, -1, UNSTABLE)])
    story.end(PRODUCER, commits=True)
    assert story.load().offset() == 12


def test_tombstone_removes_pending_offsets() -> None:
    story = TransactionLog()
    story.commit(10, producer=PRODUCER)
    story.commit(11, producer=OTHER_PRODUCER)
    story.commit(None)
    story.end(PRODUCER, commits=True)
    rig = story.load()
    assert (rig.offset(), rig.shard.groups, len(rig.shard.offsets.pending)) == (-1, {}, 0)


def test_transactions_of_several_groups_end_together() -> None:
    story = TransactionLog()
    story.commit(1, producer=PRODUCER, group="a")
    story.commit(2, producer=PRODUCER, group="b")
    story.commit(3, producer=OTHER_PRODUCER, group="b", partition=1)
    story.end(PRODUCER, commits=True)
    rig = story.load()
    assert [rig.offset(group_id="a"), rig.offset(group_id="b"), rig.offset("orders", 1, group_id="b")] == [1, 2, -1]
    assert list(rig.shard.offsets.pending.groups()) == ["b"]


def test_marker_of_a_transaction_without_offsets_has_no_effect() -> None:
    story = TransactionLog()
    story.commit(3)
    story.end(PRODUCER, commits=True)
    assert story.load().offset() == 3


def test_marker_above_the_high_watermark_is_not_visible() -> None:
    story = TransactionLog()
    story.commit(3)
    story.commit(5, producer=PRODUCER)
    story.log.commits_at_once = False
    story.end(PRODUCER, commits=True)
    rig = story.load()
    assert rig.offset() == 3
    rig.commit_log()
    assert rig.offset() == 5


def test_group_with_pending_offsets_only_exists_until_the_abort() -> None:
    story = TransactionLog()
    story.commit(5, producer=PRODUCER)
    rig = story.load()
    assert list(rig.shard.groups) == ["g"]
    assert code(rig.commit(offsets={("orders", 1): 1})) == 0
    assert code(rig.delete_offsets(("orders", 1))) == 0
    assert list(rig.shard.groups) == ["g"]
    rig.shard.end_transaction(PRODUCER, 9, commits=False, committed=True)
    assert rig.shard.groups == {}


def test_live_shard_and_loaded_shard_agree() -> None:
    story = TransactionLog()
    rig = story.load()
    change = OffsetChange(OffsetKey("g", "orders", 0), CommittedOffset(5, -1, "", 0))
    rig.shard.replay_pending(change, 0, PRODUCER)
    assert list(rig.shard.groups) == ["g"]
    assert found(stable_fetch(rig, 0)) == [(0, -1, UNSTABLE)]
    rig.shard.end_transaction(PRODUCER, 1, commits=True, committed=True)
    assert rig.offset() == 5


def test_expiry_skips_offsets_of_open_transactions() -> None:
    story = TransactionLog()
    story.commit(3)
    story.commit(4, partition=1)
    story.commit(5, producer=PRODUCER)
    rig = story.load()
    rig.pass_time(2 * WEEK)
    assert (rig.offset(), rig.offset("orders", 1), list(rig.shard.groups)) == (3, -1, ["g"])


def test_deleting_offsets_groups_and_topics_removes_pending_offsets() -> None:
    removals: list[Callable[[Rig], object]] = [
        lambda rig: rig.delete_offsets(("orders", 0)),
        lambda rig: rig.delete_group(),
        lambda rig: rig.runtime.topics_deleted({TOPIC_IDS["orders"]: "orders"}),
    ]
    for remove in removals:
        story = TransactionLog()
        story.commit(5, producer=PRODUCER)
        remove(story.load())
        story.end(PRODUCER, commits=True)
        rig = story.load()
        assert (rig.offset(), rig.shard.groups) == (-1, {})
        assert code(rig.delete_group()) == GroupIdNotFoundError.code
