"""The statistics measure what Kafka's own classes measure, on scripts of random values."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tests.support.metric_scripts import measured, scripts
from triokafka.metrics import (
    Avg,
    ConstantBins,
    Frequencies,
    Frequency,
    LinearBins,
    Max,
    MetricConfig,
    MetricName,
    Metrics,
    Percentile,
    Percentiles,
    Quota,
    Rate,
    TimeUnit,
    TokenBucket,
    WindowedCount,
    WindowedSum,
)

DATA = Path(__file__).parents[2] / "data" / "metric_statistics.jsonl"


def name(text: str) -> MetricName:
    return MetricName(text, "group")


def test_statistics_are_equal_to_kafkas() -> None:
    """The file is the output of Kafka 4.3's classes; ``tests/interop/test_metrics.py`` makes it again."""
    theirs = [json.loads(line) for line in DATA.read_text().splitlines()]
    for number, (expected, found) in enumerate(zip(theirs, measured(scripts()), strict=True)):
        for key, value in expected.items():
            want, got = float(value), found[key]
            same = math.isclose(want, got, rel_tol=1e-6, abs_tol=1e-6) or (math.isnan(want) and math.isnan(got))
            assert same, f"measure {number}: {key} is {got}, in Kafka {want}"


def test_a_sensor_that_adds_values_up_measures_the_same_when_it_is_read_after_each_value() -> None:
    lines = [
        line for one in scripts(seed=3) for line in ([one, f"measure {one.split()[-1]}"] if "record" in one else [one])
    ]
    exact, added = list(measured(lines)), list(measured(lines, resolution_seconds=0.5))
    for expected, found in zip(exact, added, strict=True):
        for key in found.keys() - {"tokens"}:
            want, got = expected[key], found[key]
            assert math.isclose(want, got, abs_tol=1e-6) or (math.isnan(want) and math.isnan(got)), key


def test_portions_keep_sum_count_and_extremes() -> None:
    registry = Metrics(lambda: 0.0)
    sensor = registry.sensor("s", resolution_seconds=1.0)
    read = {
        stat: sensor.add(name(stat), made) for stat, made in (("avg", Avg()), ("max", Max()), ("sum", WindowedSum()))
    }
    for number in range(10):
        sensor.record(number, number / 10)
    assert [read[stat].value(1.0) for stat in ("avg", "max", "sum")] == [4.5, 9, 45]


@pytest.mark.parametrize(
    ("records", "samples", "at", "rate"),
    [([(0, 1)] * 10, 2, 2, 10 / 32), ([(0, 100), (30, 100)], 3, 75, 200 / 75)],
)
def test_rate_divides_by_at_least_all_but_one_windows(
    records: list[tuple[float, float]], samples: int, at: float, rate: float
) -> None:
    registry = Metrics(lambda: 0.0, config=MetricConfig(samples=samples))
    metric = registry.sensor("s").add(name("rate"), Rate())
    for when, value in records:
        registry.sensor("s").record(value, when)
    assert metric.value(at) == pytest.approx(rate)


def test_rate_of_nanoseconds_per_nanosecond_is_a_share_of_time() -> None:
    registry = Metrics(lambda: 0.0)
    metric = registry.sensor("s").add(name("ratio"), Rate(unit=TimeUnit.NANOSECONDS))
    registry.sensor("s").record(15e9, 0.0)
    assert metric.value(0.0) == pytest.approx(0.5)


def test_rate_of_one_sample_divides_by_a_millisecond_at_the_start() -> None:
    registry = Metrics(lambda: 0.0, config=MetricConfig(samples=1))
    metric = registry.sensor("s").add(name("rate"), Rate())
    registry.sensor("s").record(1, 0.0)
    assert metric.value(0.0) == pytest.approx(1000)


@pytest.mark.parametrize(("records", "count"), [(2, 2), (3, 3), (4, 3)])
def test_event_window_completes_a_sample(records: int, count: int) -> None:
    registry = Metrics(lambda: 0.0, config=MetricConfig(samples=2, event_window=1))
    metric = registry.sensor("s").add(name("count"), WindowedCount())
    for _ in range(records):
        registry.sensor("s").record(1, 0.0)
    assert metric.value(0.0) == count


def test_token_bucket_is_full_at_first_refills_and_goes_below_zero() -> None:
    registry = Metrics(lambda: 0.0, config=MetricConfig(quota=Quota.upper_bound(10), samples=5, window_seconds=2))
    metric = registry.sensor("s").add(name("tokens"), TokenBucket())
    assert metric.value(100.0) == 100
    registry.sensor("s").record(160, 100.0, check_quotas=False)
    assert [metric.value(at) for at in (100.0, 103.0, 107.0, 200.0)] == [-60, -30, 10, 100]


def test_token_bucket_without_quota_is_infinite() -> None:
    assert TokenBucket().measure(MetricConfig(), 0.0) == math.inf


def test_linear_bins_need_the_minimum_0() -> None:
    with pytest.raises(ValueError, match="minimum 0"):
        Percentiles.within(400, 1.0, 2.0, [Percentile(name("p"), 50)], linear=True)


@pytest.mark.parametrize("bins", [ConstantBins(50, 0.0, 10.0), LinearBins(50, 10.0)])
def test_bins_hold_the_values_they_stand_for(bins: ConstantBins | LinearBins) -> None:
    assert all(bins.to_bin(bins.from_bin(number) + 1e-9) == number for number in range(bins.bins))
    assert [bins.to_bin(-1.0), bins.to_bin(1e9)] == [0, bins.bins - 1]


def test_frequencies_refuse_a_center_outside_of_the_range() -> None:
    with pytest.raises(ValueError, match="not between"):
        Frequencies(4, 0.0, 1.0, [Frequency(name("f"), 2.0)])


def test_config_refuses_no_samples_and_no_window() -> None:
    with pytest.raises(ValueError, match="samples"):
        MetricConfig(samples=0)
    with pytest.raises(ValueError, match="window_seconds"):
        MetricConfig(window_seconds=0)
