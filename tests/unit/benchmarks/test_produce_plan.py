"""Targets and plan of the producer benchmark."""

from __future__ import annotations

import pytest

from benchmarks.produce import plan_of
from benchmarks.produce_plan import QUICK, Measured, Plan, Scenario, Target, everything, verdicts

SMALL = Scenario("sink", 100, "none")
TARGET = Target(100, "none", "ours", "theirs", 2.0)


def measured(speed: float, processor: float) -> dict[tuple[Scenario, str], Measured]:
    return {(SMALL, "ours"): Measured(speed, processor), (SMALL, "theirs"): Measured(100.0, 1.0)}


def test_a_target_needs_speed_and_processor_time() -> None:
    assert verdicts(measured(200.0, 0.5), [TARGET])[0].met
    assert not verdicts(measured(199.0, 0.5), [TARGET])[0].met
    assert not verdicts(measured(200.0, 0.51), [TARGET])[0].met


def test_ratios_are_those_that_were_measured() -> None:
    (verdict,) = verdicts(measured(350.0, 0.25), [TARGET])
    assert (verdict.speed, verdict.processor) == (3.5, 4.0)


def test_a_target_counts_against_the_sink_only_and_when_both_were_measured() -> None:
    found = measured(200.0, 0.5)
    del found[SMALL, "theirs"]
    found[Scenario("noida-db", 100, "none"), "theirs"] = Measured(1.0, 1.0)
    assert verdicts(found, [TARGET]) == []


def test_everything_is_every_broker_size_and_codec() -> None:
    assert len(everything()) == len(set(everything())) == 18


def test_idempotence_is_measured_only_where_it_matters() -> None:
    plan = Plan(everything())
    assert "confluent produce idempotent" in plan.clients_in(SMALL)
    assert "confluent produce idempotent" not in plan.clients_in(Scenario("sink", 1024, "lz4"))


def test_heavier_work_means_fewer_records() -> None:
    plan = Plan(everything())
    counts = [
        plan.records_for("triokafka send_many", scenario)
        for scenario in (SMALL, Scenario("sink", 100, "zstd"), Scenario("sink", 1024, "zstd"))
    ]
    assert counts == sorted(counts, reverse=True)
    assert all(count % 10_000 == 0 for count in counts)
    assert plan.records_for("kafka-python send", Scenario("sink", 1024, "zstd")) == 10_000


def test_the_command_line_narrows_the_plan() -> None:
    plan = plan_of(
        ["--broker", "sink", "--size", "100", "--size", "1024", "--client", "aiokafka send", "--rounds", "5"]
    )
    assert plan.scenarios == (SMALL, Scenario("sink", 1024, "none"))
    assert plan.clients == ("aiokafka send",)
    assert plan.rounds_against("sink") == 5
    assert plan_of(["--quick"]) == QUICK


def test_unknown_clients_are_refused() -> None:
    with pytest.raises(SystemExit):
        plan_of(["--client", "nobody"])
