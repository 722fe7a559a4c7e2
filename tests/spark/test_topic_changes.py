"""Topics that change during a read: every change, at every place, in a batch and in a query, with loss as an error and
with loss allowed. No row is read twice, and no existing record is lost.

Reads are done as by Spark's workers; `test_spark_faults` repeats some of it in Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import pyspark_triokafka
from tests.spark.changing_topics import Topic
from tests.spark.engine import StandInQuery, values
from tests.spark.topics import Record
from triokafka.errors import KafkaError
from triokafka.spark.planning.data_loss import KafkaDataLossError
from triokafka.spark.planning.read_options import ReadOptions
from triokafka.spark.reading.topic_reader import TopicReader

QUICK = {"fetchOffset.retryIntervalMs": "10", "kafkaConsumer.pollTimeoutMs": "2000"}
PATIENT = {"kafkaConsumer.pollTimeoutMs": "10000"}
# The prefetch is small, so that most of a range is read after the change in its middle.
LITTLE = {
    "kafka.prefetch.max.bytes": "20000", "kafka.max.partition.fetch.bytes": "10000",
    "batchRows": "20", "fetchAhead": "1",
}  # fmt: skip
COUNT = 1_000


class Change(NamedTuple):
    """A change of a topic of two partitions with values 0 to 999 in partition 0."""

    make: Callable[[Topic], None]
    kind: str = ""
    """The class of the loss; empty when nothing is lost."""
    first: int = 0
    """Unread records below this offset are deleted."""
    end: int = COUNT
    """Unread records from this offset on are deleted."""
    anew: bool = False
    """What comes is the new topic's, whose values are larger by a million."""


def write(topic: Topic, start: int, end: int) -> None:
    topic.write(Record(b"%0200d" % value) for value in range(start, end))


def recreate(topic: Topic, count: int) -> None:
    topic.delete()
    topic.create()
    write(topic, 1_000_000, 1_000_000 + count)


CHANGES = {
    "written to": Change(lambda topic: write(topic, COUNT, COUNT + 50)),
    "grown": Change(lambda topic: topic.grow(4)),
    "cut at its beginning": Change(lambda topic: topic.cut(900), "START_OFFSET_RESET|COULD_NOT_READ_OFFSET", 900),
    "cut whole": Change(lambda topic: topic.cut(COUNT), "COULD_NOT_READ_OFFSET_RANGE", COUNT),
    "deleted": Change(lambda topic: topic.delete(), "PARTITIONS_DELETED", end=0),
    "made anew without records": Change(lambda topic: recreate(topic, 0), "COULD_NOT_READ|PARTITIONS_DEL", end=0),
    "made anew with fewer": Change(lambda topic: recreate(topic, 600), "COULD_NOT_READ|PARTITIONS_DEL", 0, 600, True),
    "made anew with as many": Change(lambda topic: recreate(topic, COUNT), "PARTITIONS_DELETED", anew=True),
    "made anew with more": Change(lambda topic: recreate(topic, 2 * COUNT), "PARTITIONS_DELETED", anew=True),
}


@pytest.fixture
def topic(bootstrap: str) -> Topic:
    made = Topic(bootstrap, 2)
    write(made, 0, COUNT)
    return made


def offsets_and_values(batches: Iterator[Any]) -> Iterator[list[tuple[int, int]]]:
    for batch in batches:
        yield list(zip(batch["offset"].to_pylist(), map(int, batch["value"].to_pylist()), strict=True))


@pytest.mark.parametrize("fails", ["true", "false"])
@pytest.mark.parametrize("streaming", [False, pytest.param(True, marks=pytest.mark.long)], ids=["batch", "micro-batch"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_topic_that_changes_while_a_task_reads(topic: Topic, name: str, streaming: bool, fails: str) -> None:
    """The change happens in the middle of a range."""
    change = CHANGES[name]
    given = {"kafka.bootstrap.servers": topic.bootstrap, "subscribe": topic.name, "failOnDataLoss": fails}
    reader: Any
    if streaming:
        source = pyspark_triokafka.DefaultSource({**given, **QUICK, **LITTLE})
        reader = source.streamReader(source.schema())
        (task,) = reader.partitions({topic.name: {"0": 0, "1": 0}}, {topic.name: {"0": COUNT, "1": 0}})
    else:
        reader = TopicReader(ReadOptions.parse({**given, **QUICK, **LITTLE}))
        (task,) = reader.partitions()
    pieces = offsets_and_values(reader.read(task))
    found = next(pieces) + next(pieces)
    assert found[-1][0] < 100
    change.make(topic)
    if change.kind and fails == "true":
        with pytest.raises(KafkaDataLossError, match=rf"KAFKA_DATA_LOSS\.({change.kind})"):
            for piece in pieces:
                found += piece
    else:
        for piece in pieces:
            found += piece
    offsets = [offset for offset, _ in found]
    assert offsets == sorted(set(offsets)), "a row is read twice or out of order"
    # Prefetched records are returned anyway; behind them only existing ones.
    ahead = next((at for at, (offset, value) in enumerate(found) if offset != at or value != offset), len(found))
    assert ahead < 300 or not change.kind
    if fails == "true" and change.kind:
        assert len(found) == ahead, "a record behind the loss was read"
    elif not change.kind:
        assert offsets == list(range(COUNT))
    else:
        left = range(max(change.first, ahead), change.end)
        assert found[ahead:] == [(offset, offset + 1_000_000 * change.anew) for offset in left]


@pytest.mark.parametrize("fails", ["true", "false"])
@pytest.mark.parametrize("streaming", [False, pytest.param(True, marks=pytest.mark.long)], ids=["batch", "micro-batch"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_topic_that_changes_between_the_plan_and_its_tasks(
    topic: Topic, name: str, streaming: bool, fails: str
) -> None:
    """A task knows the id of the planned topic, so a recreated topic is a loss whatever offsets it has; if loss is
    allowed, the task reads the present records at its offsets, as the connector does, which does not compare ids.
    """
    change = CHANGES[name]
    given = {"kafka.bootstrap.servers": topic.bootstrap, "subscribe": topic.name, "failOnDataLoss": fails, **QUICK}
    reader: Any
    if streaming:
        source = pyspark_triokafka.DefaultSource(given)
        reader = source.streamReader(source.schema())
        (task,) = reader.partitions({topic.name: {"0": 0, "1": 0}}, {topic.name: {"0": COUNT, "1": 0}})
    else:
        reader = TopicReader(ReadOptions.parse(given))
        (task,) = reader.partitions()
    change.make(topic)
    if change.kind and fails == "true":
        with pytest.raises(KafkaDataLossError, match=rf"KAFKA_DATA_LOSS\.({change.kind})"):
            list(reader.read(task))
        return
    found = [one for piece in offsets_and_values(reader.read(task)) for one in piece]
    left = range(change.first, change.end)
    assert found == [(offset, offset + 1_000_000 * change.anew) for offset in left]


@pytest.mark.parametrize("fails", ["true", "false"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_topic_that_changes_between_micro_batches(topic: Topic, tmp_path: Path, name: str, fails: str) -> None:
    """The query has read 300 records of the first partition; then the checkpoint is resumed with loss allowed."""
    change = CHANGES[name]
    # The full time limit passes only if a topic is deleted permanently; recreating one takes a while on a busy machine.
    patience = QUICK if change.kind == "PARTITIONS_DELETED" and not change.end else {**QUICK, **PATIENT}
    given = {"kafka.bootstrap.servers": topic.bootstrap, "startingOffsets": "earliest", **patience}
    pattern = f"{topic.name}|{topic.name}-more"  # so that a deleted topic is not an error of the options
    asked = StandInQuery(tmp_path, {**given, "subscribePattern": pattern, "maxOffsetsPerTrigger": "300"})

    def once(number: int) -> None:
        if number == 0:
            change.make(topic)

    asked.in_batch = once
    asked.start(failOnDataLoss=fails)
    lost: KafkaError | None = None
    try:
        asked.process_all()
    except KafkaDataLossError as error:
        lost = error
    assert (lost is not None) == (bool(change.kind) and fails == "true"), lost
    asked.stop()
    if change.kind == "PARTITIONS_DELETED" and change.end == 0:
        return
    asked.start(failOnDataLoss="false")
    write(topic, 2_000_000, 2_000_010)
    asked.process_all()
    found = values(asked)
    assert len(found) == len(set(found)), "a row was read twice"
    assert found[:300] == list(range(300))
    if not change.kind:
        more = range(COUNT, COUNT + 50) if name == "written to" else ()
        assert found == [*range(COUNT), *more, *range(2_000_000, 2_000_010)]
    elif not change.anew and change.end:
        assert found[300:] == [*range(max(300, change.first), COUNT), *range(2_000_000, 2_000_010)]
    else:
        # From the old offset on, as far as the new topic has records.
        assert found[300:301] == [1_000_300 if change.anew else 2_000_000]
        assert found[-10:] == list(range(2_000_000, 2_000_010))


@pytest.fixture(scope="module")
def ten(bootstrap: str) -> Topic:
    """Create a log with the offsets 10 to 20."""
    made = Topic(bootstrap, 1)
    made.add(range(20))
    made.cut(10)
    return made


@pytest.mark.parametrize("start", [0, 5, 9, 10, 11, 15, 16, 20, 30])
@pytest.mark.parametrize("fails", ["true", "false"])
def test_offsets_out_of_range_at_any_place(ten: Topic, start: int, fails: str) -> None:
    """A range of five offsets starts before the log, at its edges, in it, at its end, and behind it."""
    topic = ten
    given = {"kafka.bootstrap.servers": topic.bootstrap, "subscribe": topic.name, "failOnDataLoss": fails, **QUICK}
    source = pyspark_triokafka.DefaultSource(given)
    reader: Any = source.streamReader(source.schema())
    (task,) = reader.partitions({topic.name: {"0": start}}, {topic.name: {"0": start + 5}})
    if fails == "true" and not (10 <= start <= 15):
        with pytest.raises(KafkaDataLossError, match=r"START_OFFSET_RESET|COULD_NOT_READ_OFFSET_RANGE"):
            list(reader.read(task))
        return
    found = [value for piece in offsets_and_values(reader.read(task)) for _, value in piece]
    assert found == list(range(max(start, 10), min(start + 5, 20)))
