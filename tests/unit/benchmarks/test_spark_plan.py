"""Plan, targets and tables of the Spark benchmark; nothing is measured here."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import spark
from benchmarks.spark import FULL, QUICK, Findings, Row, as_document, draw, ratios, show


def row(reader: str, rate: float, operation: str = "noop", mode: str = "batch") -> Row:
    return Row("triokafka", 100, "none", mode, operation, reader, 1_000, 1.0, rate, 0.5)


ROWS = [row("triokafka", 3.0), row("connector", 2.0), row("ceiling", 4.0), row("ready", 6.0), row("tuples", 0.1)]


def test_ours_is_held_against_each_reader_with_its_aim() -> None:
    found = {ratio.against: (ratio.ratio, ratio.target) for ratio in ratios(ROWS)}
    assert found == {
        "connector": (1.5, 1.5),
        "ceiling": (0.75, 0.85),
        "ready": (0.5, None),
        "tuples": (pytest.approx(30.0), 8.0),
    }


def test_only_what_the_connector_prunes_as_well_is_aimed_at() -> None:
    counted = ratios([row(reader, 1.0, "count") for reader in ("triokafka", "connector", "ceiling")])
    assert {ratio.against: ratio.target for ratio in counted} == {"connector": 1.5, "ceiling": None}
    grouped = ratios([row(reader, 1.0, "group by") for reader in ("triokafka", "connector")])
    assert [ratio.target for ratio in grouped] == [None]


def test_without_ours_there_is_nothing_to_hold() -> None:
    assert ratios(ROWS[1:]) == []


def test_the_table_says_what_was_missed_and_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    found = Findings(ROWS, ratios(ROWS), [], ["connector-1.jar"], ["Apache Kafka: no java"])
    show(found)
    said = capsys.readouterr().out
    assert "/ ceiling      0.75  (aim 0.85, missed)" in said
    assert "connector: connector-1.jar" in said
    assert "FAILED: Apache Kafka: no java" in said
    assert as_document(found)["jars"] == ["connector-1.jar"]
    assert draw(found) is not None


def test_the_command_line_narrows_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def run(plan: Any) -> Findings:
        asked.append(plan)
        return Findings(ROWS, [], [], [], [])

    monkeypatch.setattr(spark, "run", run)
    monkeypatch.setattr(spark, "save", lambda *_: None)
    for arguments in ([], ["--quick"], ["--records", "10", "--broker", "triokafka", "--size", "100", "--size", "1000"]):
        monkeypatch.setattr("sys.argv", ["spark", *arguments])
        assert spark.main() == 0
    assert asked == [FULL, QUICK, FULL._replace(records=10, brokers=["triokafka"], sizes=[100, 1000])]
