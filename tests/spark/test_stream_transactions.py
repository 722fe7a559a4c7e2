"""Streaming queries over transactions: control records count as offsets, and batches may be empty."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.engine import StandInQuery, sizes, values
from tests.spark.written_logs import LogWriter, WrittenLog, log_writer
from triokafka.spark.planning.read_options import ReadOptions
from triokafka.spark.planning.size_estimates import bytes_per_offset
from triokafka.structs import TopicPartition


@pytest.fixture(scope="module")
def logs() -> Iterator[LogWriter]:
    with log_writer() as writer:
        yield writer


def query_of(topic: WrittenLog, place: Path, isolation: str) -> StandInQuery:
    more = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "3", "kafka.isolation.level": isolation}
    return StandInQuery(place / "checkpoint", topic.options(**more))


def test_read_committed(logs: LogWriter, tmp_path: Path) -> None:
    """read Kafka transactional messages: read_committed"""
    topic = logs.topic()
    query = query_of(topic, tmp_path, "read_committed")
    query.start()
    query.process_all()
    topic.write(range(5), producer=1)
    query.process_all()
    assert values(query) == [], "uncommitted records are not read"
    topic.commit(1)  # at offset 5
    query.process_all()
    assert sizes(query) == [0, 3, 2], "the marker counts as an offset"
    topic.write(range(5, 10), producer=1)
    topic.abort(1)  # offsets 6 to 11
    query.process_all()
    assert sizes(query) == [0, 3, 2, 0, 0], "batches without a visible record"
    topic.write(range(10, 12), producer=1)
    topic.write(range(20, 22), producer=2)
    topic.commit(2)  # 12 to 16, and the first transaction is open
    query.process_all()
    assert sizes(query) == [0, 3, 2, 0, 0], "the last stable offset is before these records"
    topic.abort(1)
    topic.write([30])
    query.process_all()
    assert values(query) == [*range(5), 20, 21, 30]
    query.stop()
    query.start()
    query.process_all()
    assert values(query) == [*range(5), 20, 21, 30]


def test_read_uncommitted(logs: LogWriter, tmp_path: Path) -> None:
    """read Kafka transactional messages: read_uncommitted"""
    topic = logs.topic()
    query = query_of(topic, tmp_path, "read_uncommitted")
    query.start()
    query.process_all()
    topic.write(range(5), producer=1)
    query.process_all()
    assert sizes(query) == [0, 3, 2], "uncommitted records are read"
    topic.commit(1)
    query.process_all()
    assert sizes(query) == [0, 3, 2, 0], "a batch with only a marker"
    topic.write(range(5, 10), producer=1)
    topic.abort(1)
    query.process_all()
    assert values(query) == list(range(10)), "aborted records are read, too"
    assert sizes(query) == [0, 3, 2, 0, 3, 2]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_the_suites_offsets_batch_by_batch(logs: LogWriter, tmp_path: Path, isolation: str) -> None:
    """read Kafka transactional messages: read_committed, read_uncommitted: values are their offsets, three to a batch;
    whole batches without a record, and gaps first, in the middle and last"""
    topic = logs.topic()
    query = query_of(topic, tmp_path, isolation)
    query.start()

    def new(*batches: list[int]) -> None:
        before = len(query.batches)
        query.process_all()
        found = [sorted(int(row["value"]) for row in query.batches[number]) for number in sorted(query.batches)]
        assert found[before:] == list(batches)

    new([])  # the first batch always runs
    is_committed = isolation == "read_committed"
    topic.write(range(5), producer=1)
    new(*([] if is_committed else [[0, 1, 2], [3, 4]]))
    topic.commit(1)  # 5
    new(*([[0, 1, 2], [3, 4]] if is_committed else [[]]))
    topic.write(range(6, 11), producer=1)
    topic.abort(1)  # 11
    new(*([[], []] if is_committed else [[6, 7, 8], [9, 10]]))
    topic.write(range(12, 17), producer=1)
    topic.commit(1)  # 17
    new([12, 13, 14], [15, 16])
    for written in ([18], [20], [22, 23]):
        topic.write(written, producer=1)
        topic.commit(1)  # 19, 21, 24
    new([18, 20], [22, 23], [])
    query.stop()


def test_records_after_the_planned_range_are_not_mixed_into_the_next_batch(logs: LogWriter, tmp_path: Path) -> None:
    """SPARK-25495: FetchedData.reset should reset all fields: the task of the first batch may fetch records of the next
    one, and drops them
    """
    topic = logs.topic()
    topic.write(range(4), producer=1)
    topic.commit(1)
    given = {"startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
    query = StandInQuery(tmp_path / "checkpoint", topic.options(**given))

    def write_more(number: int) -> None:
        if number == 0:
            topic.write(range(4, 8), producer=1)
            topic.commit(1)

    query.planned = write_more
    query.start()
    query.process_all()
    assert [[int(row["value"]) for row in query.batches[number]] for number in (0, 1)] == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize("gap", ["first", "middle", "last"])
def test_gaps_in_a_range_are_no_loss(logs: LogWriter, tmp_path: Path, gap: str) -> None:
    """the gaps of compaction: first, middle and last of a batch"""
    topic = logs.topic()
    if gap != "first":
        topic.write(range(3))
    topic.write_at(9, range(9, 12))
    if gap == "last":
        topic.write([90], producer=1)
        topic.abort(1)
    query = StandInQuery(tmp_path / "checkpoint", topic.options(**{
        "startingOffsets": f'{{"{topic.name}": {{"0": 0}}}}', "kafka.isolation.level": "read_committed"
    }))  # fmt: skip
    query.start()
    query.process_all()
    assert values(query) == ([] if gap == "first" else [0, 1, 2]) + [9, 10, 11]
    assert query.batches.keys() == {0}


def test_sizes_are_checked_behind_a_gap_of_compaction(logs: LogWriter) -> None:
    """The first offsets have no record: the records after them must not be overlooked."""
    log = logs.topic(3)
    for partition in range(2):
        log.write_at(50_000, ["x" * 1_000] * 20, partition=partition)
    log.write(["x" * 10] * 10, partition=2)
    options = ReadOptions.parse(log.options(), streaming=True)
    ones = [TopicPartition(log.name, partition) for partition in range(3)]
    found = bytes_per_offset(options, dict.fromkeys(ones, 0), {ones[0]: 50_020, ones[1]: 50_000, ones[2]: 10})
    assert found == {ones[0]: 1_000, ones[1]: 0, ones[2]: 10}
