"""Planning and reading as Spark's Python workers do, with a real broker and without a JVM."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from tests.spark.topics import Record, delete_before, delete_topic, make_topic, options
from triokafka.client.range_session import RangeSession
from triokafka.errors import (
    ConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)
from triokafka.spark.planning.data_loss import KafkaDataLossError
from triokafka.spark.planning.read_options import ReadOptions
from triokafka.spark.planning.tasks import TaskRange
from triokafka.spark.reading import task_reader
from triokafka.spark.reading.topic_reader import RangePartition, TopicReader
from triokafka.spark.schema import arrow_schema


def reader(bootstrap: str, topic: str, **more: str) -> TopicReader:
    return TopicReader(ReadOptions.parse(options(bootstrap, topic, **more)))


def offsets(made: TopicReader) -> list[tuple[int, int]]:
    """Return partition and offset of every record, in the order in which tasks read them."""
    return [
        (partition, offset)
        for task in made.partitions()
        for batch in made.read(task)
        for partition, offset in zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True)
    ]


def test_each_partition_with_records_is_one_task(bootstrap: str) -> None:
    topic = make_topic(bootstrap, [Record(b"a"), Record(b"b"), Record(b"c", partition=2)], partitions=3)
    made = reader(bootstrap, topic)
    tasks = made.partitions()
    assert [[one[:4] for one in task.ranges] for task in tasks] == [[(topic, 0, 0, 2)], [(topic, 2, 0, 1)]]
    [topic_id] = {one.topic_id for task in tasks for one in task.ranges}
    assert topic_id is not None and topic_id.int, "the id assigned by the broker (KIP-516)"
    assert offsets(made) == [(0, 0), (0, 1), (2, 0)]


def test_a_task_is_small_and_survives_pickling(bootstrap: str) -> None:
    made = reader(bootstrap, make_topic(bootstrap, [Record(b"a")]))
    (task,) = made.partitions()
    pickled = pickle.dumps((made, task))
    assert len(pickled) < 2_500
    again, same = pickle.loads(pickled)
    assert sum(batch.num_rows for batch in again.read(same)) == 1


@pytest.mark.parametrize("headers", ["false", "true"])
def test_batches_have_exactly_the_schema_that_spark_expects(bootstrap: str, headers: str) -> None:
    """Spark checks only the first batch, so every other one must be right by construction."""
    written = [Record(b"v", headers=(("h", b"1"),) if number % 3 else ()) for number in range(25_000)]
    made = reader(bootstrap, make_topic(bootstrap, written), includeHeaders=headers)
    (task,) = made.partitions()
    batches = list(made.read(task))
    assert len(batches) > 1
    assert {batch.schema for batch in batches} == {arrow_schema(made.options)}
    assert sum(batch.num_rows for batch in batches) == 25_000
    for batch in batches:
        batch.validate(full=True)


def test_plan_without_ranges_is_a_partition_without_a_value(bootstrap: str) -> None:
    """Spark would create its own partition from an empty list."""
    from pyspark.sql.datasource import InputPartition

    made = reader(bootstrap, make_topic(bootstrap))
    assert made.partitions() == []
    assert list(made.read(InputPartition(None))) == []
    assert list(made.read(None)) == []


def test_large_records_make_small_batches(bootstrap: str) -> None:
    """Batches far above a megabyte halve the throughput. A batch ends with the record that makes it large enough."""
    written = [Record(bytes([number]) * 300_000) for number in range(12)]
    made = reader(bootstrap, make_topic(bootstrap, written))
    (task,) = made.partitions()
    batches = list(made.read(task))
    assert max(batch.num_rows for batch in batches) * 300_000 < made.options.batch_bytes + 300_000
    assert len(batches) > 1
    assert [bytes([value[0]]) * 300_000 for batch in batches for value in batch["value"].to_pylist()] == [
        record.value for record in written
    ]


def test_small_records_make_batches_of_about_a_megabyte(bootstrap: str) -> None:
    """Several batches are decoded in one call, which Spark does not notice."""
    made = reader(bootstrap, make_topic(bootstrap, [Record(b"%01000d" % number) for number in range(7_000)]))
    (task,) = made.partitions()
    batches = list(made.read(task))
    assert made.options.batch_bytes == 1 << 20
    assert all(batch.nbytes <= 1.25 * (1 << 20) for batch in batches)
    assert all(batch.nbytes >= 0.5 * (1 << 20) for batch in batches[:-1])
    assert [int(value) for batch in batches for value in batch["value"].to_pylist()] == list(range(7_000))


def test_a_record_larger_than_a_batch_is_a_batch_of_its_own(bootstrap: str) -> None:
    made = reader(bootstrap, make_topic(bootstrap, [Record(b"x" * (3 << 20)), Record(b"y")]))
    (task,) = made.partitions()
    assert [len(value) for batch in made.read(task) for value in batch["value"].to_pylist()] == [3 << 20, 1]


def test_exactly_the_given_offsets_are_read(bootstrap: str) -> None:
    topic = make_topic(bootstrap, [Record(b"v", partition=number % 2) for number in range(20)], partitions=2)
    made = reader(
        bootstrap,
        topic,
        startingOffsets=f'{{"{topic}": {{"0": 3, "1": -2}}}}',
        endingOffsets=f'{{"{topic}": {{"0": -1, "1": 4}}}}',
    )
    assert offsets(made) == [*((0, offset) for offset in range(3, 10)), *((1, offset) for offset in range(4))]


def test_records_written_after_planning_are_not_read(bootstrap: str) -> None:
    topic = make_topic(bootstrap, [Record(b"v") for _ in range(10)])
    made = reader(bootstrap, topic, endingOffsets=f'{{"{topic}": {{"0": 6}}}}')
    assert offsets(made) == [(0, offset) for offset in range(6)]


def test_read_from_earliest_excludes_records_deleted_by_retention(bootstrap: str) -> None:
    topic = make_topic(bootstrap, [Record(b"v") for _ in range(10)])
    delete_before(bootstrap, topic, 4)
    assert offsets(reader(bootstrap, topic)) == [(0, offset) for offset in range(4, 10)]


def test_deleted_offsets_fail_the_plan(bootstrap: str) -> None:
    topic = make_topic(bootstrap, [Record(b"v") for _ in range(10)])
    delete_before(bootstrap, topic, 4)
    with pytest.raises(KafkaDataLossError, match=r"asks for offset 1, and the log starts at 4"):
        reader(bootstrap, topic, startingOffsets=f'{{"{topic}": {{"0": 1}}}}').partitions()


def test_offsets_deleted_after_planning_fail_the_task(bootstrap: str) -> None:
    """A bounded read never ends early without an error."""
    topic = make_topic(bootstrap, [Record(b"v") for _ in range(10)])
    made = reader(bootstrap, topic)
    (task,) = made.partitions()
    delete_before(bootstrap, topic, 4)
    with pytest.raises(KafkaDataLossError, match=r"START_OFFSET_RESET.* was 0 but consumer reset to 4"):
        list(made.read(task))


def test_a_topic_deleted_after_planning_fails_the_task(bootstrap: str) -> None:
    topic = make_topic(bootstrap, [Record(b"v") for _ in range(10)])
    made = reader(bootstrap, topic, **{"kafka.default.api.timeout.ms": "1500"})
    (task,) = made.partitions()
    delete_topic(bootstrap, topic)
    with pytest.raises(KafkaError, match=topic):
        list(made.read(task))


def test_an_unknown_topic_is_a_sentence_and_is_not_created(bootstrap: str) -> None:
    for _ in range(2):
        with pytest.raises(
            UnknownTopicOrPartitionError, match=f"topic 'nowhere' does not exist at {bootstrap}: create it, or check"
        ):
            reader(bootstrap, "nowhere", **{"fetchOffset.retryIntervalMs": "10"}).partitions()


def test_errors_do_not_show_the_frames_of_the_event_loop(bootstrap: str) -> None:
    """Spark prints the whole traceback to its users."""
    with pytest.raises(UnknownTopicOrPartitionError) as planned:
        reader(bootstrap, "nowhere", **{"fetchOffset.retryIntervalMs": "10"}).partitions()
    with pytest.raises(KafkaDataLossError) as read:
        list(reader(bootstrap, "any").read(RangePartition((TaskRange(make_topic(bootstrap), 0, 5, 6),))))
    for failed in (planned, read):
        assert not [entry for entry in failed.traceback if "site-packages" in str(entry.path)]


def test_offsets_without_all_partitions_are_refused(bootstrap: str) -> None:
    topic = make_topic(bootstrap, [Record(b"v")], partitions=2)
    with pytest.raises(ConfigurationError, match=f"Specified: {topic}-0 Assigned: {topic}-0, {topic}-1"):
        reader(bootstrap, topic, startingOffsets=f'{{"{topic}": {{"0": 0}}}}').partitions()


def test_an_unreachable_broker_is_a_one_line_error_in_time() -> None:
    """Spark itself sets no time limit."""
    made = reader("127.0.0.1:1", "orders", **{"kafka.default.api.timeout.ms": "500"})
    with pytest.raises(KafkaTimeoutError, match=r"no broker can be reached: .*127\.0\.0\.1:1"):
        made.partitions()


def test_tasks_of_one_worker_share_connections_and_abandoned_ones_release_theirs(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark uses a Python worker for many tasks."""
    made: list[RangeSession] = []
    begin = RangeSession.__aenter__

    async def counted(session: RangeSession) -> RangeSession:
        made.append(session)
        return await begin(session)

    monkeypatch.setattr(RangeSession, "__aenter__", counted)
    topic = make_topic(bootstrap, [Record(b"v" * 500, partition=n % 4) for n in range(8_000)], partitions=4)
    more = {"kafka.client.id": "shares"}
    for _ in range(2):
        # Each micro-batch has its own reader.
        reading = reader(bootstrap, topic, **more)
        assert sum(batch.num_rows for task in reading.partitions() for batch in reading.read(task)) == 8_000
        given_up = reading.read(reading.partitions()[0])
        next(given_up)
        given_up.close()  # type: ignore[attr-defined]
    assert 1 <= len(made) <= 2, "a second session only if a task starts before the abandoned one has released the first"


def test_an_abandoned_read_leaks_nothing(bootstrap: str) -> None:
    """LIMIT closes the generator in the middle."""
    made = reader(bootstrap, make_topic(bootstrap, [Record(b"v" * 1_000) for _ in range(40_000)]))
    (task,) = made.partitions()
    for _ in range(3):
        batches = made.read(task)
        assert isinstance(next(batches), pa.RecordBatch)
        batches.close()  # type: ignore[attr-defined]
    assert sum(batch.num_rows for batch in made.read(task)) == 40_000


@pytest.mark.parametrize("is_given_up", [False, True])
def test_worker_freezes_loaded_modules_after_sparks_imports(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, is_given_up: bool
) -> None:
    ends: list[str] = []
    monkeypatch.setattr(task_reader, "keep_what_is_loaded", lambda: ends.append("end"))
    made = reader(bootstrap, make_topic(bootstrap, [Record(b"a")]))
    (task,) = made.partitions()
    batches = made.read(task)
    next(batches)
    assert not ends, "Spark imports pandas with the first batch"
    if is_given_up:
        batches.close()  # type: ignore[attr-defined]
    else:
        assert list(batches) == []
    assert ends == ["end"]
