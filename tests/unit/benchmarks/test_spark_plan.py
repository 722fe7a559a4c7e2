"""Plan, targets and tables of the Spark benchmark; nothing is measured here."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import spark
from benchmarks.spark import ESSENTIAL, FULL, QUICK
from benchmarks.spark_tables import Findings, MemoryRow, Row, as_document, draw, is_met, ratios, show


def row(reader: str, rate: float, operation: str = "noop", mode: str = "batch", rows: int = 1_000_000) -> Row:
    return Row("triokafka", 100, "none", mode, operation, reader, rows, 1.0, rate, 0.5)


ROWS = [row("triokafka", 3.0), row("connector", 2.0), row("ceiling", 4.0), row("ready", 6.0), row("tuples", 0.1)]


def test_ours_is_held_against_each_reader_with_its_aim() -> None:
    """Promised: read rate. What was measured is on the page about Spark."""
    found = {ratio.against: (ratio.ratio, ratio.target) for ratio in ratios(ROWS)}
    assert found == {
        "connector": (1.5, 1.5),
        "ceiling": (0.75, 0.85),
        "ready": (0.5, None),
        "tuples": (pytest.approx(30.0), 8.0),
    }


def test_tuples_of_all_clients_have_one_goal_and_the_transport_has_its_own() -> None:
    """At least eight times the tuples, which was measured with both made before."""
    tuples = ["kafka-python tuples", "confluent-kafka tuples", "ready tuples"]
    found = ratios([row("triokafka", 4.0), row("ready", 5.0), *(row(reader, 0.5) for reader in tuples)])
    assert [(ratio.of, ratio.against, ratio.ratio, ratio.target) for ratio in found] == [
        ("triokafka", "ready", 0.8, None),
        ("triokafka", "kafka-python tuples", 8.0, 8.0),
        ("triokafka", "confluent-kafka tuples", 8.0, 8.0),
        ("triokafka", "ready tuples", 8.0, None),
        ("ready", "ready tuples", 10.0, 8.0),
    ]
    without = ratios([row("ready", 5.0), row("ready tuples", 1.0)])
    assert [(ratio.of, ratio.ratio, is_met(ratio)) for ratio in without] == [("ready", 5.0, False)]


def test_start_time_of_a_query_is_excluded_from_the_rate_of_tuples() -> None:
    """Tuples are read from a tenth, on which the same start would weigh ten times as much."""
    ours = row("triokafka", 500_000.0)._replace(seconds=2.0, start_seconds=1.0, start_cpu_seconds=0.25)
    slow = row("tuples", 25_000.0, rows=100_000)._replace(seconds=4.0, start_seconds=2.0, cpu_seconds_per_million=10.0)
    found = {ratio.against: ratio for ratio in ratios([ours, slow, row("ceiling", 500_000.0)])}
    assert (found["tuples"].ratio, found["tuples"].cpu_ratio) == (pytest.approx(20.0), pytest.approx(40.0))
    assert found["ceiling"].ratio == 1.0


def test_tuples_whose_start_took_most_of_the_time_meet_no_aim_and_miss_none() -> None:
    """If the start took longer than the query, as on a busy machine, the rest would give an arbitrary rate."""
    for start, cpu in ((0.7, 0.0), (1.0, 0.0), (2.0, 0.0), (0.1, 0.4), (0.1, 1.0)):
        slow = row("tuples", 0.1)._replace(start_seconds=start, start_cpu_seconds=cpu)
        (ratio,) = ratios([row("triokafka", 1.0), slow])
        assert (ratio.ratio, ratio.target, ratio.reason) == (10.0, None, "starting took most of the time")


def test_only_queries_that_the_connector_also_prunes_have_a_target() -> None:
    counted = ratios([row(reader, 1.0, "count") for reader in ("triokafka", "connector", "ceiling")])
    assert {ratio.against: ratio.target for ratio in counted} == {"connector": 1.5, "ceiling": None}
    grouped = ratios([row(reader, 1.0, "group by") for reader in ("triokafka", "connector")])
    assert [ratio.target for ratio in grouped] == [None]


def test_the_connector_is_aimed_at_only_where_reading_is_most_of_the_work() -> None:
    few = ratios([row(reader, 1.0, rows=999_999) for reader in ("triokafka", "connector", "ceiling")])
    assert {ratio.against: ratio.target for ratio in few} == {"connector": None, "ceiling": 0.85}
    assert few[0].reason == "fewer than 10 partitions of 100,000 rows"
    streams = [row(reader, 1.0, "count", "available now") for reader in ("triokafka", "connector")]
    assert [ratio.target for ratio in ratios(streams)] == [1.5]
    assert [ratio.target for ratio in ratios(streams, partitions=4)] == [None]


def test_without_ours_there_is_nothing_to_hold() -> None:
    assert ratios(ROWS[1:]) == []


def test_table_shows_for_each_target_whether_it_is_met_and_the_failures(capsys: pytest.CaptureFixture[str]) -> None:
    peaks = [MemoryRow("triokafka", 100, "none", "triokafka", peak, 256.0) for peak in (200.0, 300.0)]
    rows = [*ROWS, row("ready tuples", 1.0)]
    found = Findings(rows, ratios(rows), [], peaks, ["connector-1.jar"], ["Apache Kafka: no java"])
    show(found)
    said = capsys.readouterr().out
    case = "NOT MET triokafka       100 B none "
    met = case.replace("NOT MET", "met    ")
    assert f"  {met} batch         noop      {'/ connector':24}   1.50  (at least 1.5); CPU 1.00" in said
    assert f"{case} batch         noop      {'/ ceiling':24}   0.75  (at least 0.85)" in said
    assert f"{case} batch         noop      {'ready / ready tuples':24}   6.00  (at least 8.0)" in said
    assert f"{'/ ready':24}   0.50  (fetches nothing)" in said
    assert "2 of 4 floors met" in said
    assert f"  {met} {'triokafka':22}    200 MiB in the largest worker, at most 256" in said
    assert f"{case} {'triokafka':22}    300 MiB in the largest worker, at most 256" in said
    assert "connector: connector-1.jar" in said
    assert "FAILED: Apache Kafka: no java" in said
    assert as_document(found)["jars"] == ["connector-1.jar"]
    assert draw(found) is not None


def test_the_command_line_narrows_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def run(plan: Any) -> Findings:
        asked.append(plan)
        return Findings(ROWS, [], [], [], [], [])

    monkeypatch.setattr(spark, "run", run)
    monkeypatch.setattr(spark, "save", lambda *_: None)
    for arguments in (
        [],
        ["--quick"],
        ["--essential"],
        ["--records", "10", "--broker", "triokafka", "--size", "100", "--size", "1000"],
        ["--reader", "triokafka", "--reader", "kafka-python tuples", "--reader", "ready tuples"],
    ):
        monkeypatch.setattr("sys.argv", ["spark", *arguments])
        assert spark.main() == 0
    assert asked == [
        FULL,
        QUICK,
        ESSENTIAL,
        FULL._replace(records=10, brokers=["triokafka"], sizes=[100, 1000]),
        FULL._replace(readers=["triokafka", "kafka-python tuples", "ready tuples"]),
    ]
