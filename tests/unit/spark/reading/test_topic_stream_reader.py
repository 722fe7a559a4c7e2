"""The stream reader's decisions, with scripted responses of the brokers."""

from __future__ import annotations

import inspect
import json
import pickle
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from triokafka.errors import ConfigurationError
from triokafka.spark.listener import offset_commit_listener as listener
from triokafka.spark.planning import size_estimates
from triokafka.spark.planning.bounds import Offsets
from triokafka.spark.planning.data_loss import KafkaDataLossError
from triokafka.spark.planning.offsets_json import offsets_json
from triokafka.spark.planning.read_options import ReadOptions
from triokafka.spark.planning.tasks import TaskRange
from triokafka.spark.reading import topic_stream_reader as stream
from triokafka.spark.reading.topic_reader import RangePartition
from triokafka.spark.reading.topic_stream_reader import TopicStreamReader
from triokafka.structs import TopicPartition

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


class ScriptedBrokers:
    """Brokers with scripted responses: one after the other, the last one repeatedly."""

    def __init__(self) -> None:
        self.ends: list[dict[TopicPartition, int]] = [{A: 0}]
        self.first: dict[TopicPartition, int] = {}
        self.topic_ids: dict[str, UUID] = {}
        self.asked = 0
        self.described = 0

    async def partitions(self, *, missing_ok: bool = False) -> list[TopicPartition]:
        self.described += 1
        return list(self.ends[0])

    async def earliest(self, partitions: Any) -> dict[TopicPartition, int]:
        return {one: self.first.get(one, 0) for one in partitions}

    async def latest(self, partitions: Any) -> dict[TopicPartition, int]:
        if not list(partitions):
            return {}
        self.asked += 1
        return self.ends.pop(0) if len(self.ends) > 1 else dict(self.ends[0])


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedBrokers]:
    given = ScriptedBrokers()

    def ask(options: ReadOptions, work: Any) -> Any:
        calls = work(given)
        try:
            calls.send(None)
        except StopIteration as done:
            return done.value
        raise AssertionError("nothing here waits")

    monkeypatch.setattr(stream, "ask_brokers", ask)
    yield given


def reader(now: list[float] | None = None, **options: Any) -> TopicStreamReader:
    given = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "orders", "fetchOffset.retryIntervalMs": "0"}
    parsed = ReadOptions.parse({**given, **options}, streaming=True)
    return TopicStreamReader(parsed, now_ms=(lambda: now[0]) if now is not None else None)


def at(**offsets: int) -> dict[str, Any]:
    """Return offsets of orders as Spark passes them: ``at(a=5, b=3)``."""
    return {"orders": {str("ab".index(name)): offset for name, offset in offsets.items()}}


class ReadAllAvailable:
    """Stands in for Spark's limit of this name."""


def test_latest_is_resolved_once_though_spark_asks_twice(brokers: ScriptedBrokers) -> None:
    brokers.ends = [{A: 5}, {A: 9}]
    asked = reader()
    assert asked.initialOffset() == asked.initialOffset() == at(a=5)


def test_one_method_serves_old_and_new_sparks() -> None:
    """The engine checks the number of parameters, and older versions call it without any."""
    parameters = inspect.signature(reader().latestOffset).parameters.values()
    assert [parameter.default for parameter in parameters] == [None, None]


def test_offsets_come_as_the_same_text_however_the_brokers_order_them(brokers: ScriptedBrokers) -> None:
    brokers.ends = [{B: 2, A: 1}, {A: 1, B: 2}]
    asked = reader()
    assert json.dumps(asked.latestOffset(at(a=0), None)) == json.dumps(asked.latestOffset(at(a=0), None))


def test_a_limit_of_everything_takes_precedence_over_the_options(brokers: ScriptedBrokers) -> None:
    """Trigger.Once passes it."""
    brokers.ends = [{A: 100}]
    asked = reader(maxOffsetsPerTrigger="10")
    assert asked.latestOffset(at(a=0), ReadAllAvailable()) == at(a=100)
    assert asked.latestOffset(at(a=0), None) == at(a=10)


def test_without_a_start_the_first_batch_is_whole_and_the_others_follow_each_other(brokers: ScriptedBrokers) -> None:
    """Spark 4.0 and 4.1 report neither the start nor the trigger, and call once for a whole run of AvailableNow."""
    brokers.ends = [{A: 25}]
    asked = reader(maxOffsetsPerTrigger="10", startingOffsets="earliest")
    asked.initialOffset()
    assert asked.latestOffset() == at(a=25)
    brokers.ends = [{A: 50}]
    assert [asked.latestOffset() for _ in range(4)] == [at(a=35), at(a=45), at(a=50), at(a=50)]


def test_after_a_first_batch_without_a_start_the_next_waits_for_enough(brokers: ScriptedBrokers) -> None:
    """MinOffsetsPerTrigger. Only the first batch does not wait, including Spark 4.0 and 4.1."""
    now = [0.0]
    brokers.ends = [{A: 3}]
    asked = reader(now, minOffsetsPerTrigger="10", maxTriggerDelay="1m", startingOffsets="earliest")
    asked.initialOffset()
    assert asked.latestOffset() == at(a=3)
    brokers.ends = [{A: 4}]
    assert asked.latestOffset() == at(a=3)
    now[0] = 60_000
    assert asked.latestOffset() == at(a=4)


def test_waiting_for_more_gives_the_start_itself_also_when_partitions_are_new(brokers: ScriptedBrokers) -> None:
    """A different text would cause an empty batch."""
    now = [0.0]
    asked = reader(now, minOffsetsPerTrigger="10", maxOffsetsPerTrigger="20", maxTriggerDelay="1m")
    asked.latestOffset(at(a=0), None)
    brokers.ends = [{A: 1, B: 2}]
    assert asked.latestOffset(at(a=0), None) == at(a=0)
    now[0] = 60_000
    assert asked.latestOffset(at(a=0), None) == at(a=1, b=2)


def test_an_end_that_went_back_is_requested_again(brokers: ScriptedBrokers) -> None:
    """SPARK-26267: a new leader may lag behind for a moment."""
    brokers.ends = [{A: 3}, {A: 4}, {A: 7}]
    assert reader().latestOffset(at(a=5), None) == at(a=7)
    assert brokers.asked == 3


def test_a_temporarily_missing_partition_is_requested_again(brokers: ScriptedBrokers) -> None:
    """A broker that has just started knows few topics: this is no data loss."""
    brokers.ends = [{B: 1}, {A: 7, B: 1}]
    assert reader().latestOffset(at(a=5, b=1), None) == at(a=7, b=1)
    assert brokers.asked == 2


def test_an_end_that_stays_back_counts_after_the_tries(brokers: ScriptedBrokers) -> None:
    brokers.ends = [{A: 3}]
    assert reader(**{"fetchOffset.numRetries": "4"}).latestOffset(at(a=5), None) == at(a=3)  # type: ignore[arg-type]
    assert brokers.asked == 4


def test_the_wait_for_decreased_ends_is_configurable(brokers: ScriptedBrokers) -> None:
    brokers.ends = [*({A: 3} for _ in range(8)), {A: 6}]
    asked = reader(latestOffsetRegressionTimeout="1s")
    assert asked.latestOffset(at(a=5), None) == at(a=6)


def test_a_run_of_available_now_ignores_later_records(brokers: ScriptedBrokers) -> None:
    brokers.ends = [{A: 5}, {A: 9, B: 2}]
    asked = reader(startingOffsets="earliest")
    asked.prepareForTriggerAvailableNow()
    assert asked.initialOffset() == at(a=0)
    assert asked.latestOffset(at(a=0), None) == at(a=5)
    assert asked.reportLatestOffset() == at(a=5)


def test_a_run_of_available_now_asks_again_for_ends_that_went_back(brokers: ScriptedBrokers) -> None:
    """SPARK-26267: a run that starts during leader changes must not report data loss.

    One check is enough: its target does not change.
    """
    brokers.ends = [{A: 3}, {A: 4, B: 1}, {A: 7, B: 1}, {A: 9, B: 9}]
    asked = reader()
    asked.prepareForTriggerAvailableNow()
    assert asked.latestOffset(at(a=5, b=1), None) == at(a=7, b=1)
    assert asked.latestOffset(at(a=7, b=1), None) == at(a=7, b=1)
    assert asked.partitions(at(a=5, b=1), at(a=7, b=1))


def test_a_run_of_available_now_with_ends_that_stay_back_is_a_loss(brokers: ScriptedBrokers) -> None:
    brokers.ends = [{A: 3}]
    asked = reader()
    asked.prepareForTriggerAvailableNow()
    assert asked.latestOffset(at(a=5), None) == at(a=3)
    assert brokers.asked == 1 + 3
    with pytest.raises(KafkaDataLossError, match="PARTITION_OFFSET_CHANGED"):
        asked.partitions(at(a=5), at(a=3))


@pytest.mark.parametrize(
    "checkpoint", [{"orders": {"0": "x"}}, {"orders": {"0": -2}}, {"orders": 5}, {"a": {"b": 1}}, 7, []]
)
def test_an_invalid_checkpoint_is_a_clear_error(brokers: ScriptedBrokers, checkpoint: Any) -> None:
    """As an option, -2 means the start of a log: all of it would be read again."""
    for ask in (lambda: reader().latestOffset(checkpoint, None), lambda: reader().partitions(checkpoint, at(a=5))):
        with pytest.raises(
            ConfigurationError, match="the query's checkpoint is damaged, or belongs to another source: "
        ):
            ask()


def test_latest_of_a_run_of_available_now_is_its_target(brokers: ScriptedBrokers) -> None:
    """Spark prepares the run first: a latest offset beyond the target would be a loss."""
    brokers.ends = [{A: 5}, {A: 9, B: 2}]
    asked = reader(startingOffsets="latest")
    asked.prepareForTriggerAvailableNow()
    assert asked.initialOffset() == at(a=5)
    assert asked.latestOffset(at(a=5), None) == at(a=5)


def test_an_offset_beyond_the_end_is_a_loss_in_a_run_of_available_now_too(brokers: ScriptedBrokers) -> None:
    """Otherwise the query would start at the end, and its next run would read the skipped records."""
    brokers.ends = [{A: 5, B: 5}]
    named: dict[str, Any] = {"startingOffsets": '{"orders": {"0": 1000, "1": -1}}'}
    for fails in ("true", "false"):
        asked = reader(failOnDataLoss=fails, **named)
        asked.prepareForTriggerAvailableNow()
        start = asked.initialOffset()
        assert start == at(a=1000, b=5)
        end = asked.latestOffset(start, None)
        assert end == at(a=5, b=5)
        if fails == "true":
            with pytest.raises(KafkaDataLossError, match=r"PARTITION_OFFSET_CHANGED.*orders-0.*from 1000 to 5"):
                asked.partitions(start, end)
        else:
            assert asked.partitions(start, end) == []


def ranges(tasks: list[Any]) -> list[tuple[int, int, int]]:
    return [(one.partition, one.start, one.end) for task in tasks for one in task.ranges]


def test_new_partitions_are_read_from_their_beginning(brokers: ScriptedBrokers) -> None:
    brokers.ends = [{A: 5, B: 3}]
    assert ranges(reader().partitions(at(a=4), at(a=5, b=3))) == [(0, 4, 5), (1, 0, 3)]


@pytest.mark.parametrize(("given", "tasks"), [(None, 1), ("1", 1), ("4", 4)])
def test_min_partitions_is_supported(brokers: ScriptedBrokers, given: str | None, tasks: int) -> None:
    """KafkaMicroBatchSourceSuite: minPartitions is supported"""
    options: dict[str, Any] = {} if given is None else {"minPartitions": given}
    assert len(reader(**options).partitions(at(a=0), at(a=100))) == tasks


def test_all_partitions_that_are_gone_are_an_error_or_stay_where_they_were(brokers: ScriptedBrokers) -> None:
    """SPARK-41375: an empty offset in the log would lose the offsets already reached."""
    brokers.ends = [{}]
    assert reader(failOnDataLoss="false").latestOffset(at(a=5), None) == at(a=5)
    with pytest.raises(KafkaDataLossError, match=r"PARTITIONS_DELETED.*orders-0"):
        reader().latestOffset(at(a=5), None)
    assert reader().latestOffset({}, None) == {}


def test_recreated_topic_is_reported_even_if_its_offsets_do_not_show_it(
    brokers: ScriptedBrokers, caplog: pytest.LogCaptureFixture
) -> None:
    brokers.ends = [{A: 5}]
    for fails in ("true", "false"):
        asked = reader(failOnDataLoss=fails)
        brokers.topic_ids = {"orders": UUID(int=1)}
        assert asked.latestOffset(at(a=5), None) == at(a=5)
        brokers.topic_ids = {"orders": UUID(int=2)}
        assert asked.latestOffset(at(a=0), None) == at(a=5), "no record of the topic was read yet"
        brokers.topic_ids = {"orders": UUID(int=3)}
        if fails == "true":
            with pytest.raises(KafkaDataLossError, match=r"PARTITIONS_DELETED.*orders-0 have been deleted and recre"):
                asked.latestOffset(at(a=5), None)
            continue
        caplog.clear()
        for _ in range(2):
            assert asked.latestOffset(at(a=5), None) == at(a=5)
        assert len(caplog.records) == 1, "reported once"


@pytest.mark.parametrize(
    ("start", "end", "there", "first", "kind", "left"),
    [
        (at(a=5), at(a=3), {A: 3}, {}, "PARTITION_OFFSET_CHANGED", []),
        (at(a=5, b=1), at(a=6), {A: 6}, {}, "PARTITIONS_DELETED", [(0, 5, 6)]),
        (at(), at(b=9), {B: 9}, {B: 4}, "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO", [(1, 4, 9)]),
        (at(a=5), at(a=6, b=9), {A: 6}, {}, "INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS", [(0, 5, 6)]),
    ],
)  # fmt: skip
def test_data_loss_fails_the_query_or_is_a_warning(
    brokers: ScriptedBrokers,
    caplog: pytest.LogCaptureFixture,
    start: Any,
    end: Any,
    there: Offsets,
    first: Offsets,
    kind: str,
    left: list[tuple[int, int, int]],
) -> None:
    brokers.ends, brokers.first = [dict(there)], dict(first)
    with pytest.raises(KafkaDataLossError) as failed:
        reader().partitions(start, end)
    assert failed.value.error_class == f"KAFKA_DATA_LOSS.{kind}"
    assert ranges(reader(failOnDataLoss="false").partitions(start, end)) == left
    assert kind in caplog.text


def test_a_batch_that_is_planned_asks_the_brokers_nothing_when_nothing_is_new(brokers: ScriptedBrokers) -> None:
    """Every request is a round trip in every trigger.

    The topics are known from the offsets call; a batch planned by an earlier run requests them once.
    """
    asked = reader()
    for start in (4, 5):
        asked.partitions(at(a=start), at(a=start + 1))
    assert (brokers.asked, brokers.described) == (0, 1)
    asked, brokers.ends = reader(), [{A: 5}]
    asked.latestOffset(at(a=4), None)
    before = (brokers.asked, brokers.described)
    asked.partitions(at(a=4), at(a=5))
    assert (brokers.asked, brokers.described) == before


def test_tasks_know_the_topic_that_the_batch_ends_in(brokers: ScriptedBrokers) -> None:
    """KIP-516: offsets alone do not show that the topic was deleted and recreated."""

    def ids(tasks: list[Any]) -> set[UUID | None]:
        return {one.topic_id for task in tasks for one in task.ranges}

    brokers.ends, brokers.topic_ids = [{A: 5, B: 5}], {"orders": UUID(int=1)}
    asked = reader(minPartitions="4")
    assert ids(asked.partitions(at(a=0, b=0), at(a=5, b=5))) == {UUID(int=1)}, "a batch of an earlier run"
    asked = reader(failOnDataLoss="false")
    end = asked.latestOffset(at(a=0), None)
    brokers.topic_ids = {"orders": UUID(int=2)}
    assert ids(asked.partitions(at(a=0, b=0), end)) == {UUID(int=1)}, "the tasks will notice"
    brokers.topic_ids = {}
    assert ids(reader().partitions(at(a=0, b=0), at(a=5, b=5))) == {None}, "brokers that give no ids"


def test_topic_recreated_between_offsets_and_plan_is_reported_even_if_unread(
    brokers: ScriptedBrokers,
) -> None:
    brokers.ends, brokers.topic_ids = [{A: 5, B: 5}], {"orders": UUID(int=1)}
    asked = reader()
    end = asked.latestOffset(at(a=0), None)
    brokers.topic_ids = {"orders": UUID(int=2)}
    with pytest.raises(KafkaDataLossError, match=r"PARTITIONS_DELETED.*recreated"):
        asked.partitions(at(a=0), end)  # a partition is new, so the brokers are asked


def test_tasks_of_a_plan_without_ids_are_still_read() -> None:
    """This is a plan pickled before ranges had topic ids."""
    old = (
        b"\x80\x04\x95\x92\x00\x00\x00\x00\x00\x00\x00\x8c\x24triokafka.spark.reading.topic_reader\x94\x8c\x0eRangePartition"
        b"\x94\x93\x94)\x81\x94}\x94\x8c\x06ranges\x94\x8c\x1etriokafka.spark.planning.tasks\x94\x8c\x0bOffsetRange"
        b"\x94\x93\x94(\x8c\x06orders\x94K\x00K\x05K\tt\x94\x81\x94\x85\x94sb."
    )
    assert pickle.loads(old) == RangePartition((TaskRange("orders", 0, 5, 9),))
    assert pickle.loads(old).ranges[0].topic_id is None


def test_a_commit_that_fails_ends_no_query(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*arguments: Any) -> None:
        raise RuntimeError("no coordinator")

    monkeypatch.setattr(listener, "commit_to_group", fail)
    reader(commitGroupId="watchers").commit(at(a=5))
    assert "group 'watchers': the end of a batch was not committed" in caplog.text


def test_without_a_group_nothing_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "commit_to_group", lambda *arguments: pytest.fail("committed"))
    reader().commit(at(a=5))


def test_bytes_limit_a_batch_also_where_sizes_cannot_be_looked_at(
    brokers: ScriptedBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last known sizes apply; and few records are taken from a partition without any known size."""
    answers: list[dict[TopicPartition, float]] = [{}, {A: 10.0}, {}]
    monkeypatch.setattr(size_estimates, "bytes_per_offset", lambda *arguments: answers.pop(0))
    brokers.ends = [{A: 5_000}]
    asked = reader(maxBytesPerTrigger="3000")
    asked.initialOffset()
    assert asked.latestOffset(at(a=0)) == at(a=100)
    assert asked.latestOffset(at(a=100)) == at(a=400)
    assert asked.latestOffset(at(a=400)) == at(a=700)


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, "ReadAllAvailable()"),
        ({"maxOffsetsPerTrigger": "7", "minOffsetsPerTrigger": "2"}, "ReadMaxRows(max_rows=7)"),
        ({"minOffsetsPerTrigger": "2"}, "ReadMinRows(min_rows=2)"),
        ({"maxBytesPerTrigger": "9"}, "ReadMaxBytes(max_bytes=9)"),
        ({"maxBytesPerPartition": "3"}, "ReadMaxBytes(max_bytes=3)"),
    ],
)
def test_reader_declares_its_limits_to_spark(options: dict[str, str], limit: str) -> None:
    """Otherwise Spark would pass ReadAllAvailable, which takes precedence."""
    assert repr(reader(**options).getDefaultReadLimit()) == limit  # type: ignore[arg-type]


def test_the_reader_of_the_tasks_is_small(brokers: ScriptedBrokers) -> None:
    assert len(pickle.dumps(reader())) < 4_000
    assert offsets_json({A: 1}) == at(a=1)
