"""The runtime with a coordinator type other than groups: counters in their own topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from tests.unit.coordinator.rig import ScriptedLog, StillWorld
from triokafka.coordinator.runtime.coordinator_log import CoordinatorRecord
from triokafka.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from triokafka.coordinator.runtime.coordinator_type import CommitLevel, CoordinatorType
from triokafka.coordinator.runtime.effects import Effects
from triokafka.coordinator.runtime.journal import Journal
from triokafka.coordinator.runtime.reply import Reply
from triokafka.coordinator.runtime.shard_context import ShardState
from triokafka.coordinator.runtime.timer_queue import TimerKey, TimerQueue
from triokafka.errors import KafkaStorageError, NotCoordinatorError, RequestTimedOutError

TOPIC_ID = UUID(int=7)


class Count(NamedTuple):
    """The value of a counter; None removes it."""

    name: str
    value: int | None


class CounterShard:
    """The counters of one partition. A counter is named after a topic, and is removed when it expires."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.timers = TimerQueue()
        self.counts: dict[str, int] = {}
        self.journal: Journal[str, int] = Journal()
        self.has_loaded = False

    def encode(self, change: Count) -> CoordinatorRecord:
        return CoordinatorRecord(change.name.encode(), None if change.value is None else b"%d" % change.value)

    def decode(self, key: bytes | None, value: bytes | None) -> Count | None:
        return None if key is None else Count(key.decode(), None if value is None else int(value))

    def replay(self, change: Count, offset: int, *, committed: bool) -> None:
        if not committed:
            self.journal.note(offset, change.name, self.counts.get(change.name))
        if change.value is None:
            self.counts.pop(change.name, None)
        else:
            self.counts[change.name] = change.value

    def replay_pending(self, change: Count, offset: int, producer_id: int) -> None:
        raise AssertionError("no transaction writes counters")

    def end_transaction(self, producer_id: int, offset: int, *, commits: bool, committed: bool) -> None:
        raise AssertionError("no transaction writes counters")

    def commit(self, committed_below: int) -> None:
        self.journal.commit(committed_below)

    def loaded(self, effects: Effects[Count]) -> None:
        self.has_loaded = True

    def timer_fired(self, key: TimerKey, effects: Effects[Count]) -> None:
        effects.write(Count(key.entity_id, 0))

    def expire(self, effects: Effects[Count]) -> float | None:
        """Remove one counter in an append."""
        name = next(iter(self.counts), None)
        if name is not None:
            effects.write(Count(name, None))
        return 0.5 if len(self.counts) > 1 else None

    def topics_deleted(self, topics: Mapping[UUID, str], effects: Effects[Count]) -> None:
        for name in topics.values():
            if name in self.counts:
                effects.write(Count(name, None))

    def unload(self) -> list[Reply[Any]]:
        return []

    def committed(self, name: str) -> int | None:
        return self.journal.committed(name, self.counts.get(name))


class Counters:
    """A coordinator of counters on a scripted log, with a manual clock."""

    def __init__(self, **settings: Any) -> None:
        self.world = StillWorld()
        self.log = ScriptedLog()
        kind = CoordinatorType(
            name="counter",
            topic="__counters",
            new_shard=lambda partition, leader_epoch: CounterShard(partition),
            timer_fired=CounterShard.timer_fired,
            expire=CounterShard.expire,
            topics_deleted=CounterShard.topics_deleted,
            commit_timeout_ms=2_000,
            partition_of=lambda key, partitions: len(key) % partitions,
            **settings,
        )
        self.runtime: CoordinatorRuntime[CounterShard, Count] = CoordinatorRuntime(
            self.world, self.log, kind, partitions=3, wake=lambda: None
        )
        for partition in range(3):
            self.runtime.load(partition, 0)
        self.runtime.load_all()

    def add(self, name: str, number: int) -> Reply[int]:
        reply: Reply[int] = Reply()

        def operation(shard: CounterShard, effects: Effects[Count]) -> None:
            value = shard.counts.get(name, 0) + number
            effects.write(Count(name, value))
            effects.answer(reply, value)

        self.runtime.write(self.runtime.partition_for(name), operation)
        return reply

    def count(self, name: str) -> int | None:
        return self.runtime.read(self.runtime.partition_for(name), lambda shard: shard.committed(name))

    def pass_time(self, seconds: float) -> None:
        end = self.world.clock + seconds
        while (due := self.runtime.next_deadline()) <= end:
            self.world.clock = max(self.world.clock, due)
            self.runtime.fire_due()
            self.runtime.load_all()
        self.world.clock = end


def test_response_waits_for_the_commit_and_state_survives_a_reload() -> None:
    counters = Counters()
    assert counters.add("a", 2).value == 2
    counters.log.commits_at_once = False
    reply = counters.add("a", 3)
    assert (reply.is_set, counters.count("a")) == (False, 2)
    counters.log.high_watermarks[1] = 2
    counters.runtime.high_watermark_changed(1, 2)
    assert (reply.value, counters.count("a")) == (5, 5)
    counters.runtime.unload(1)
    with pytest.raises(NotCoordinatorError, match="__counters-1"):
        counters.add("a", 1)
    counters.runtime.load(1, 1)
    counters.runtime.load_all()
    assert counters.count("a") == 5


def test_key_belongs_to_the_partition_chosen_by_its_type() -> None:
    counters = Counters()
    counters.add("four", 1)
    assert {partition: len(records) for partition, records in counters.log.records.items()} == {1: 1}


def test_commit_that_takes_too_long_fails_the_request() -> None:
    counters = Counters()
    counters.log.commits_at_once = False
    reply = counters.add("a", 1)
    counters.pass_time(2)
    with pytest.raises(RequestTimedOutError, match="__counters-1"):
        _ = reply.value


def test_commit_level_of_the_leader_does_not_wait_for_the_high_watermark() -> None:
    counters = Counters(commit_level=CommitLevel.LEADER)
    counters.log.commits_at_once = False
    assert counters.add("a", 4).value == 4
    assert counters.count("a") == 4


def test_failed_append_changes_nothing() -> None:
    counters = Counters()
    counters.log.fails_with = KafkaStorageError("the disk is gone")
    reply = counters.add("a", 1)
    with pytest.raises(KafkaStorageError):
        _ = reply.value
    assert counters.count("a") is None


def test_expiry_runs_at_its_interval_and_in_steps() -> None:
    counters = Counters(expiry_interval_ms=10_000)
    counters.add("a", 1), counters.add("b", 1)
    counters.pass_time(9.9)
    assert (counters.count("a"), counters.count("b")) == (1, 1)
    counters.pass_time(0.2)
    assert (counters.count("a"), counters.count("b")) == (None, 1)
    counters.pass_time(10.6)
    assert (counters.count("a"), counters.count("b")) == (None, None)


def test_deleted_topics_reach_loaded_shards_now_and_loading_shards_later() -> None:
    counters = Counters()
    counters.add("a", 1), counters.add("bb", 1)
    counters.runtime.unload(2)
    counters.runtime.load(2, 1)
    counters.runtime.topics_deleted({TOPIC_ID: "a", UUID(int=8): "bb"})
    assert counters.count("a") is None
    counters.runtime.load_all()
    assert counters.count("bb") is None


def test_failed_load_is_retried_after_growing_delays(caplog: pytest.LogCaptureFixture) -> None:
    counters = Counters()
    counters.add("a", 1)
    counters.log.unreadable = OSError("a bad block")
    counters.runtime.load(1, 1)
    counters.runtime.load_all()
    assert counters.runtime.state(1) is ShardState.FAILED
    assert "__counters-1 (leader epoch 1): loading the counter coordinator failed" in caplog.text
    assert "again in 1 seconds" in caplog.text
    counters.pass_time(3)
    assert counters.runtime.state(1) is ShardState.FAILED
    assert "again in 4 seconds" in caplog.text
    counters.log.unreadable = None
    counters.pass_time(3.9)
    assert counters.runtime.state(1) is ShardState.FAILED
    counters.pass_time(0.2)
    assert (counters.runtime.state(1), counters.count("a")) == (ShardState.ACTIVE, 1)


def test_unloading_ends_the_attempts_to_load() -> None:
    counters = Counters()
    counters.log.unreadable = OSError("a bad block")
    counters.runtime.load(1, 1)
    counters.runtime.load_all()
    counters.runtime.unload(1)
    assert counters.runtime.next_deadline() == float("inf")
