"""Plan and targets of the group benchmark."""

from __future__ import annotations

from benchmarks.groups import PARTS, QUICK, Plan, plan_of
from benchmarks.groups_tables import Findings, GroupRow, LoadingRow, OffsetRow, draw, verdicts
from benchmarks.report import as_document


def group(members: int, cpu: float, broker: str = "ours") -> GroupRow:
    return GroupRow("classic", members, broker, 4.0, 1.0, cpu, 1000.0, 20.0, *[0.1] * 8)


def offsets(size: int, micros: float) -> OffsetRow:
    return OffsetRow("commit", size, "ours", 100_000.0, micros, 10.0)


def test_the_command_line_narrows_the_plan() -> None:
    assert plan_of([]) == Plan()
    assert plan_of(["--quick"]) == QUICK
    asked = plan_of(["--only", "offsets", "--broker", "triokafka", "--batch", "1000", "--rounds", "1"])
    assert (asked.only, asked.brokers, asked.batches, asked.rounds) == (("offsets",), ("triokafka",), (1000,), 1)
    assert set(Plan().only) == set(PARTS)


def test_growth_is_that_of_the_cost_of_a_member() -> None:
    (growth, _) = verdicts([group(100, 0.1), group(1_000, 1.2)], [], [], "ours")
    assert (round(growth.found, 3), growth.met) == (1.2, True)
    (growth, _) = verdicts([group(100, 0.1), group(1_000, 2.0)], [], [], "ours")
    assert not growth.met


def test_offsets_are_aimed_at_by_processor_time_and_in_batches_only() -> None:
    assert [verdict.met for verdict in verdicts([], [offsets(1, 99.0), offsets(1_000, 9.9)], [], "ours")] == [True]
    assert not verdicts([], [offsets(100, 10.1)], [], "ours")[0].met


def test_other_brokers_are_no_target() -> None:
    assert verdicts([group(10, 1.0, "theirs"), group(100, 99.0, "theirs")], [], [], "ours") == []


def test_findings_are_drawn_and_documented() -> None:
    loaded = LoadingRow(10, 1_000_000, "ours", 5.0, 1.0, 4.0, 3.0, 50.0, 200.0)
    rows = [group(10, 0.1), group(100, 1.0)]
    found = Findings(rows, [], [offsets(1, 30.0)], [loaded], verdicts(rows, [], [loaded], "ours"), ["one failed"])
    document = as_document(found)
    assert document["failures"] == ["one failed"]
    assert document["loading"][0]["load_cpu_micros"] == 3.0
    assert draw(found).axes[0].get_xlabel() == "members of a group"
