"""The plan, the table and the picture of the benchmark of compressed produce."""

from __future__ import annotations

import pytest

from benchmarks import broker_codecs
from benchmarks.broker_codecs import CodecRow, Findings, Plan, plan_of
from benchmarks.report import as_document

ROW = CodecRow("lz4", 1024, 200_000, 100_000, 0.5, 2.0)


def test_ratios_above_one_are_in_favour_of_this_broker() -> None:
    assert (ROW.rate_ratio, ROW.cpu_ratio) == (2.0, 4.0)
    assert as_document(Findings([ROW], []))["codecs"][0]["kafka_cpu_seconds"] == 2.0


def test_each_case_is_warmed_up_with_a_million_records_or_as_many_bytes_as_are_allowed() -> None:
    plan = Plan()
    assert [plan.warm_up_records("lz4", size) for size in plan.sizes] == [1_000_000, 1_000_000, 146_400]
    assert [plan.records("lz4", size) for size in plan.sizes] == [1_000_000, 390_600, 39_000]
    assert (plan.records("gzip", 1024), plan.warm_up_records("gzip", 1024)) == (78_100, 200_000)


def test_options_choose_cases_and_amounts() -> None:
    plan = plan_of(["--quick", "--codec", "lz4", "--size", "10", "--size", "20", "--rounds", "7", "--warm-up", "5"])
    assert (plan.codecs, plan.sizes, plan.rounds, plan.warm_up_megabytes) == (("lz4",), (10, 20), 7, 5)


def test_rows_and_failures_are_shown_and_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    found = Findings([ROW], ["gzip, 100 B: no java"])
    broker_codecs.show(found)
    said = capsys.readouterr().out
    assert "lz4      1,024     200,000    100,000   2.00        0.50       2.00   4.00" in said
    assert "FAILED  gzip, 100 B: no java" in said
    assert len(broker_codecs.draw(found).axes) == 1
