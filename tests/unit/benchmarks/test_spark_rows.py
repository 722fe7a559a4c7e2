"""The Spark benchmark measures no reader that loses rows or gives some twice."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import spark
from benchmarks.spark import QUICK
from benchmarks.spark_rows import Read, check_read
from benchmarks.spark_topics import Topic
from triokafka.cli.load.brokers import MeasurementError

RIGHT = {0: Read(4, 0, 3, 6), 1: Read(2, 0, 1, 1)}


def test_all_offsets_of_all_partitions_once_are_right() -> None:
    check_read(RIGHT, [4, 2, 0], offsets=True)
    check_read({0: Read(4, 0, 1, 2), 1: Read(2, 0, 1, 1)}, [4, 2], offsets=False)


@pytest.mark.parametrize(
    "wrong",
    [
        {1: Read(3, 0, 2, 3)},  # one beyond the end
        {1: Read(1, 0, 0, 0)},  # one too few
        {0: Read(4, 0, 3, 7)},  # one twice, and another not
        {2: Read(1, 0, 0, 0)},  # of a partition in which there is nothing
    ],
)
def test_surplus_missing_duplicate_and_foreign_rows_are_reported(wrong: dict[int, Read]) -> None:
    (partition,) = wrong
    with pytest.raises(MeasurementError, match=f"of partition {partition} was read"):
        check_read({**RIGHT, **wrong}, [4, 2], offsets=True)


def test_unread_partition_is_reported() -> None:
    with pytest.raises(MeasurementError, match=r"of partition 1 was read \(0, None, None, None\) instead of \(2, 0"):
        check_read({0: RIGHT[0]}, [4, 2], offsets=False)


class _Frame:
    """Stands in for a frame, and for the session and the readers it comes from."""

    def __init__(self, reader: str = "", ends: str = "", rows: int = 0) -> None:
        self.reader, self.ends, self.rows = reader, ends, rows
        self.read = self.write = self

    def format(self, reader: str) -> _Frame:
        return _Frame(reader, self.ends, self.rows)

    def options(self, **options: str) -> _Frame:
        return _Frame(self.reader, options.get("ends", ""), self.rows)

    def load(self) -> _Frame:
        return self

    def mode(self, _: str) -> _Frame:
        return self

    def save(self) -> None:
        pass

    def count(self) -> int:
        return self.rows


def test_tuples_are_read_from_a_tenth_of_the_rows_and_incomplete_reads_are_not_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked: dict[str, tuple[list[int], bool]] = {}

    def check(read: str, ends: list[int], *, offsets: bool) -> None:
        checked[read] = (ends, offsets)
        if read == "confluent-kafka tuples":
            raise MeasurementError("of partition 3 was read nothing")

    monkeypatch.setattr(spark, "filled", lambda _, records, *__: Topic(f"of-{records}", [records]))
    monkeypatch.setattr(spark, "read_of", lambda frame: frame.reader)
    monkeypatch.setattr(spark, "check_read", check)
    failures: list[str] = []
    plan = QUICK._replace(modes=["batch"], operations=["noop"], records=100)
    session: Any = _Frame()
    rows = spark._Case(session, plan, "triokafka", "nowhere:1", failures).measure(100, "none")
    assert {row.reader: row.rows for row in rows} == {
        "triokafka": 100,
        "connector": 100,
        "ceiling": 100,
        "ready": 100,
        "tuples": 10,
        "kafka-python tuples": 10,
        "ready tuples": 10,
    }
    assert failures == [
        "triokafka, 100 B, none, confluent-kafka tuples is not complete: of partition 3 was read nothing"
    ]
    assert {reader for reader, (_, offsets) in checked.items() if not offsets} == {"ceiling", "ready", "ready tuples"}
    assert checked["kafka-python tuples"] == ([10], True)
    assert checked["kafka"] == ([100], True)


def test_count_of_another_number_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "filled", lambda _, records, *__: Topic("of", [records]))
    monkeypatch.setattr(spark, "read_of", lambda _: {})
    monkeypatch.setattr(spark, "check_read", lambda *_, **__: None)
    failures: list[str] = []
    plan = QUICK._replace(modes=["batch"], operations=["count"], records=100, readers=["triokafka"])
    session: Any = _Frame(rows=99)
    assert spark._Case(session, plan, "triokafka", "nowhere:1", failures).measure(100, "none") == []
    assert failures == ["triokafka, batch, count, triokafka: ['99 rows instead of 100']"]
