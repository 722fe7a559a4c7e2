"""``foreachBatch`` with a context: offsets, commits, a ledger of completed batches, and the warning about a repeated
read.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

import triokafka
from tests.spark.topics import Record, delete_before, make_topic, options
from triokafka.errors import ConfigurationError, KafkaTimeoutError
from triokafka.spark.listener.offset_commit_listener import commit_to_group
from triokafka.spark.writing import foreach_batch
from triokafka.spark.writing.foreach_batch import (
    BatchContext,
    BatchRange,
    InterruptedBatchError,
    _was_read_twice,
    kafka_batch,
)
from triokafka.structs import TopicPartition

_PATIENCE = 180  # seconds, for a busy machine


def run(spark: Any, bootstrap: str, topic: str, function: Any, checkpoint: Path) -> Any:
    given = options(bootstrap, topic, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    query = (
        spark.readStream.format("triokafka")
        .options(**given)
        .load()
        .writeStream.foreachBatch(function)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(_PATIENCE)
    finally:
        query.stop()
    return query


def committed(bootstrap: str, group: str) -> dict[TopicPartition, int]:
    async def ask() -> dict[TopicPartition, int]:
        async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
            found = await admin.list_group_offsets(group)
            return {partition: each.offset for partition, each in found.items()}

    return trio.run(ask)


def test_a_function_gets_its_batch_and_does_its_work_once(
    spark: Any, bootstrap: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic(bootstrap, [Record(b"%d" % n, partition=n % 2) for n in range(30)], partitions=2)
    out = make_topic(bootstrap)
    ledger, group = f"{topic}-ledger", f"{topic}-group"
    seen: list[tuple[int, dict[TopicPartition, BatchRange]]] = []
    due: list[tuple[int, str, bool]] = []
    fail = True

    @kafka_batch(bootstrap_servers=bootstrap, group_id=group, ledger=ledger)
    def work(frame: Any, context: BatchContext) -> None:
        seen.append((context.batch_id, context.ranges))
        with context.once("copy") as first:
            due.append((context.batch_id, "copy", first))
            if first:
                context.write_kafka(frame.select("value"), out)
        with context.once("fail") as second:
            due.append((context.batch_id, "fail", second))
            if fail and context.batch_id == 1:
                raise RuntimeError("the machine is on fire")
        frame.count()
        assert context.commit_offsets()

    with pytest.raises(Exception, match="the machine is on fire"):
        run(spark, bootstrap, topic, work, tmp_path)
    fail = False
    with caplog.at_level(logging.WARNING, logger="triokafka.spark.writing.foreach_batch"):
        run(spark, bootstrap, topic, work, tmp_path)
    one, two = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert seen == [
        (number, {one: BatchRange(5 * number, 5 * number + 5), two: BatchRange(5 * number, 5 * number + 5)})
        for number in (0, 1, 1, 2)
    ]
    assert due == [
        (0, "copy", True), (0, "fail", True), (1, "copy", True), (1, "fail", True),
        (1, "copy", False), (1, "fail", True), (2, "copy", True), (2, "fail", True),
    ]  # fmt: skip
    written = triokafka.read_topic(out, bootstrap_servers=bootstrap, columns=["value"]).read_all()["value"].to_pylist()
    assert sorted(written, key=int) == [b"%d" % n for n in range(30)], "a repeated batch was not copied again"
    assert committed(bootstrap, group) == {one: 15, two: 15}


def test_the_second_format_of_the_offset_log_is_read_too(
    spark: Any, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In that format, only the rows show where a query starts."""
    topic = make_topic(bootstrap, [Record(b"x")] * 15)
    seen: list[dict[TopicPartition, BatchRange]] = []
    from_rows = foreach_batch._seen

    @kafka_batch(bootstrap_servers=bootstrap)
    def work(frame: Any, context: BatchContext) -> None:
        monkeypatch.setattr(foreach_batch, "_seen", from_rows if context.batch_id == 0 else lambda frame: {})
        seen.append(context.ranges)

    spark.conf.set("spark.sql.streaming.offsetLog.formatVersion", "2")
    try:
        run(spark, bootstrap, topic, work, tmp_path)
    finally:
        spark.conf.unset("spark.sql.streaming.offsetLog.formatVersion")
    one = TopicPartition(topic, 0)
    assert seen == [{one: BatchRange(0, 10)}, {one: BatchRange(10, 15)}]


class Progress:
    """The progress of a query."""

    def __init__(self, rows: int, start: Any = '{"t": {"0": 5}}', end: str = '{"t": {"0": 15}}', sources: int = 1):
        source = {"startOffset": start, "endOffset": end}
        self.lastProgress = {"numInputRows": rows, "sources": [source] * sources}


@pytest.mark.parametrize(
    ("query", "is_twice"),
    [
        (Progress(10), False),
        (Progress(20), True),
        (Progress(11), True),
        (Progress(7), False),
        (Progress(20, start="null"), True),
        (Progress(20, start=None), True),
        (Progress(15, start=None), False),
        (Progress(20, end="17"), False),
        (Progress(20, sources=2), False),
        (None, False),
    ],
)
def test_a_batch_that_was_read_twice_is_seen_in_the_progress(query: Any, is_twice: bool) -> None:
    assert _was_read_twice(query) is is_twice


class Log:
    """A query whose offset log has these offsets, by batch; a list for several sources, None for one without
    an offset.
    """

    def __init__(self, **offsets: Any):
        self.offsets = {int(number[1:]): found for number, found in offsets.items()}
        self._jsq = self

    def streamingQuery(self) -> Log:
        return self

    offsetLog = streamingQuery

    def get(self, batch_id: int) -> Any:
        stored = self.offsets.get(batch_id)
        found = stored if isinstance(stored, list) else [stored]
        sources = SimpleNamespace(
            size=lambda: len(found),
            apply=lambda number: SimpleNamespace(
                isDefined=lambda: found[number] is not None,
                get=lambda: SimpleNamespace(json=lambda: json.dumps(found[number])),
            ),
        )
        name = SimpleNamespace(getSimpleName=lambda: "OffsetSeq")
        entry = SimpleNamespace(offsets=lambda: sources, getClass=lambda: name)
        return SimpleNamespace(isDefined=lambda: True, get=lambda: entry)


def test_a_new_partition_starts_at_its_log_start(bootstrap: str) -> None:
    """With failOnDataLoss=false a query reads partitions whose first records were deleted before."""
    topic = make_topic(bootstrap, [Record(b"x", partition=n % 4) for n in range(40)], partitions=4)
    delete_before(bootstrap, topic, 3, partition=1)
    delete_before(bootstrap, topic, 10, partition=3)
    query = Log(_1={topic: {"0": 5}}, _2={topic: {"0": 8, "1": 9, "2": 10, "3": 10}, "gone": {"0": 7}})
    contexts: list[BatchContext] = []
    kafka_batch(bootstrap_servers=bootstrap)(lambda frame, context: contexts.append(context))(Frame(), 2)
    context = dataclasses.replace(contexts[0], _query=query)
    one, two, three = (TopicPartition(topic, number) for number in range(3))
    assert context.ranges == {one: BatchRange(5, 8), two: BatchRange(3, 9), three: BatchRange(0, 10)}


def test_end_offsets_are_committed_even_if_brokers_do_not_report_log_starts(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(bootstrap, partitions=2)
    contexts: list[BatchContext] = []
    decorate = kafka_batch(bootstrap_servers=bootstrap, group_id=f"{topic}-group")
    decorate(lambda frame, context: contexts.append(context))(Frame(), 2)
    context = dataclasses.replace(contexts[0], _query=Log(_1={topic: {"0": 5}}, _2={topic: {"0": 5, "1": 9}}))

    def never(*arguments: Any) -> Any:
        raise trio.TooSlowError

    monkeypatch.setattr(foreach_batch, "ask_admin", never)
    with pytest.raises(KafkaTimeoutError, match="the brokers returned no offsets within 30 s"):
        _ = context.ranges
    assert context.commit_offsets()
    assert committed(bootstrap, f"{topic}-group") == {TopicPartition(topic, 1): 9}


def test_the_end_of_a_first_batch_is_committed_whatever_columns_the_frame_has(bootstrap: str) -> None:
    """The offset log has it.

    A frame without topic, partition and offset once failed the query in that batch, and only there.
    """
    topic = make_topic(bootstrap, partitions=2)
    contexts: list[BatchContext] = []
    decorate = kafka_batch(bootstrap_servers=bootstrap, group_id=f"{topic}-group")
    decorate(lambda frame, context: contexts.append(context))(Frame(), 0)
    context = dataclasses.replace(contexts[0], _query=Log(_0={topic: {"0": 5, "1": 0}}))
    assert context.commit_offsets()
    assert committed(bootstrap, f"{topic}-group") == {TopicPartition(topic, 0): 5}


def test_end_offsets_of_several_sources_are_committed_and_the_lower_one_of_a_shared_partition(
    bootstrap: str,
) -> None:
    """All of them are in the offset log, and the rows need not be read again. Other sources than Kafka are skipped."""
    first, second = (make_topic(bootstrap, partitions=2) for _ in range(2))
    contexts: list[BatchContext] = []
    decorate = kafka_batch(bootstrap_servers=bootstrap, group_id=f"{first}-group")
    decorate(lambda frame, context: contexts.append(context))(Frame(), 2)
    query = Log(
        _1=[{first: {"0": 5, "1": 5}}, None, {first: {"0": 3}}, 7],
        _2=[{first: {"0": 9, "1": 5}}, {second: {"0": 4}}, {first: {"0": 6}}, 8],
    )
    context = dataclasses.replace(contexts[0], _query=query)
    assert context.commit_offsets()
    assert committed(bootstrap, f"{first}-group") == {TopicPartition(first, 0): 6, TopicPartition(second, 0): 4}
    with pytest.raises(ConfigurationError, match="only in its rows"):
        _ = context.ranges


def test_committing_to_a_group_with_members_is_a_warning(bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    """There is one warning for all partitions. To brokers, a commit from outside comes from an unknown member."""
    topic = make_topic(bootstrap, partitions=2)
    ends = {TopicPartition(topic, number): 0 for number in range(2)}

    async def commit_beside_a_member() -> bool:
        async with triokafka.Consumer(topic, bootstrap_servers=bootstrap, group_id=f"{topic}-group") as member:
            while not member.assignment():
                await member.poll(timeout_ms=100)
            return await trio.to_thread.run_sync(
                commit_to_group, {"bootstrap_servers": bootstrap}, f"{topic}-group", ends, 10_000
            )

    assert not trio.run(commit_beside_a_member)
    (record,) = [one for one in caplog.records if one.name == "triokafka.spark"]
    assert record.getMessage().endswith(
        "it has members, and only they may commit to it: name a group that no consumer uses"
    )
    assert record.getMessage().count("members") == 1


class Frame:
    """A frame of a Spark Connect session, which has no context."""

    columns = ("value",)
    sparkSession = None


def test_unknown_ids_and_missing_names_raise_descriptive_errors() -> None:
    contexts: list[BatchContext] = []
    kafka_batch(bootstrap_servers="localhost:1")(lambda frame, context: contexts.append(context))(Frame(), 3)
    (context,) = contexts
    assert (context.batch_id, context.query_id) == (3, "")
    for ask, sentence in (
        (lambda: context.ranges, "the frame lacks the columns offset, partition, topic"),
        (context.commit_offsets, "name a group"),
        (context.once("x").__enter__, "needs a ledger topic"),
    ):
        with pytest.raises(ConfigurationError, match=sentence):
            ask()
    kafka_batch(bootstrap_servers="localhost:1", ledger="l")(lambda frame, context: contexts.append(context))(
        Frame(), 3
    )
    with pytest.raises(ConfigurationError, match="needs the query's id"):
        contexts[1].once().__enter__()


@pytest.mark.parametrize("servers", ["one:1,two:2", ["one:1", "two:2"]])
def test_write_kafka_writes_to_the_brokers_of_the_decorator(monkeypatch: pytest.MonkeyPatch, servers: Any) -> None:
    written: list[tuple[Any, ...]] = []
    monkeypatch.setattr(foreach_batch, "write_kafka", lambda frame, topic, **options: written.append((topic, options)))
    kafka_batch(bootstrap_servers=servers)(lambda frame, context: context.write_kafka(frame, "t", x="y"))(Frame(), 0)
    assert written == [("t", {"kafka.bootstrap.servers": "one:1,two:2", "x": "y"})]


def test_a_wrong_option_is_refused_before_the_first_batch() -> None:
    with pytest.raises(
        ConfigurationError, match=r"'linger_ms' is not an option of kafka_batch.* connection options only"
    ):
        kafka_batch(bootstrap_servers="localhost:1", linger_ms=5)
    with pytest.raises(ConfigurationError, match=r"'group' is not an option.* did you mean 'group_id'"):
        kafka_batch(bootstrap_servers="localhost:1", group="g")
    with pytest.raises(ConfigurationError, match="request_timeout_ms"):
        kafka_batch(bootstrap_servers="localhost:1", request_timeout_ms=-5)


def test_no_repr_contains_passwords() -> None:
    contexts: list[BatchContext] = []
    decorated = kafka_batch(bootstrap_servers="localhost:1", client_id="secret")
    decorated(lambda frame, context: contexts.append(context))(Frame(), 0)
    assert "secret" not in repr(contexts)


class Py4JJavaError(Exception):
    """An exception with the name of py4j's."""


def test_a_function_interrupted_by_the_end_of_the_query_fails_with_one_line() -> None:
    """Spark searches the whole text for the interruption with a regular expression, and a usual traceback overflows its
    stack: a thousand lines on the screen for a stopped query.
    """
    java = "\n\tat ".join(["java.lang.InterruptedException", *["org.apache.spark.Some.frame(Some.scala:1)"] * 100])

    @kafka_batch(bootstrap_servers="localhost:1")
    def interrupted(frame: Any, context: BatchContext) -> None:
        raise Py4JJavaError(f"An error occurred while calling o48.count.\n: {java}")

    with pytest.raises(InterruptedBatchError) as raised:
        interrupted(Frame(), 0)
    assert str(raised.value) == (
        "py4j.protocol.Py4JJavaError: An error occurred while calling the function: java.lang.InterruptedException"
    )
    assert raised.value.__context__ is None, "py4j would print the context as well"


@pytest.mark.parametrize(
    "error",
    [
        Py4JJavaError("An error occurred.\n: java.lang.IllegalStateException\n\tat java.lang.InterruptedException"),
        ValueError("java.lang.InterruptedException"),
    ],
)
def test_other_errors_of_the_function_are_raised_unchanged(error: Exception) -> None:
    @kafka_batch(bootstrap_servers="localhost:1")
    def fails(frame: Any, context: BatchContext) -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        fails(Frame(), 0)
    assert raised.value is error
