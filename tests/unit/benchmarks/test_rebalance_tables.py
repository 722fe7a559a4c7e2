"""Targets and pictures of the benchmarks of rebalances and of assignors."""

from __future__ import annotations

from benchmarks import assignors, rebalance
from benchmarks.rebalance import Findings, Row, verdicts
from benchmarks.report import as_document


def row(members: int, messages: int, size: int, where: str = "simulated") -> Row:
    return Row(where, "eager", members, messages, size, 3.0, 10, 20, 0.5, 2.0, 1)


def test_growth_compares_the_cost_per_member() -> None:
    found = verdicts([row(3, 30, 300), row(30, 300, 3_600), row(30, 1, 1, "sockets"), row(300, 4_200, 42_000)])
    assert [(round(v.found, 2), v.met) for v in found] == [(1.0, True), (1.2, True), (1.4, False), (1.17, True)]


def test_rebalances_are_drawn_and_documented() -> None:
    rows = [row(3, 30, 300), row(30, 300, 3_000)]
    found = Findings(rows, verdicts(rows), ["one failed"])
    assert as_document(found)["rows"][0]["messages"] == 30
    assert len(rebalance.draw(found).axes) == 3


def test_every_strategy_and_kind_of_group_is_measured() -> None:
    found = assignors.run([20], rounds=1)
    assert len(found.rows) == 16 and found.targets == []
    sticky = [row for row in found.rows if "sticky" in row.strategy and row.kind.startswith("equal")]
    assert len(sticky) == 4 and all(row.moved == 0 for row in sticky)
    assert len(assignors.draw(found).axes) == 4
