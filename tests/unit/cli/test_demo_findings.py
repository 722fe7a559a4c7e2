"""The comparisons of the demo: each one that fails is named, and then its exit status is 1."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from triokafka.cli.demo.flights import CarrierTotals
from triokafka.cli.demo.report import Findings, Outage
from triokafka.cli.demo.run import show

TOTALS = {"UA": CarrierTotals(2, 2, 7), "MQ": CarrierTotals(1, 0, 0)}
COMPLETE = Findings(
    sent=3, acknowledged=3, received=3, committed={0: 2, 1: 1}, end_offsets={0: 2, 1: 1}, spark=TOTALS,
    spark_streaming=TOTALS, csv=TOTALS, produce_outages=[Outage(1.0, "node 1, a leader, was killed", 2.0)],
)  # fmt: skip


def test_complete_run_has_no_differences() -> None:
    assert COMPLETE.differences() == []
    assert show(COMPLETE, Console(quiet=True), []) == 0


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"acknowledged": 2}, "3 records were sent and 2 acknowledged"),
        ({"received": 2}, "3 records were sent and 2 distinct ones received"),
        ({"missing": ["row 7 (MQ 4646)"]}, "missing: row 7 (MQ 4646)"),
        ({"committed": {0: 2}}, "partition 1: committed None, the log ends at 1"),
        ({"committed": {0: 1, 1: 1}}, "partition 0: committed 1, the log ends at 2"),
        ({"end_offsets": {}}, "the topic has no end offsets"),
        ({"spark": {"UA": TOTALS["UA"]}}, "carrier MQ: Spark returned None"),
        ({"spark": {**TOTALS, "UA": CarrierTotals(2, 2, 8)}}, "carrier UA: Spark returned"),
        ({"spark": {**TOTALS, "XX": CarrierTotals(1, 1, 1)}}, "carrier XX: Spark returned"),
        ({"spark_streaming": {}}, "carrier MQ: Spark by micro-batch returned None"),
        ({"produce_outages": [Outage(1.0, "node 1 was killed")]}, "node 1 was killed, and did not start again"),
        ({"consume_outages": [Outage(1.0, "node 2 was killed")]}, "node 2 was killed, and did not start again"),
    ],
)
def test_difference_is_named(changes: dict[str, Any], sentence: str) -> None:
    findings = replace(COMPLETE, **changes)
    found = findings.differences()
    assert found[0].startswith(sentence)
    assert len(found) == (2 if changes.get("spark_streaming") == {} else 1)
    assert show(findings, Console(quiet=True), []) == 1
