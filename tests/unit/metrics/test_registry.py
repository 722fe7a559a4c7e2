"""Sensors, their parents and quotas, and the registry with its reporters."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from triokafka.metrics import (
    Avg,
    CumulativeSum,
    Meter,
    Metric,
    MetricConfig,
    MetricName,
    Metrics,
    Percentile,
    Percentiles,
    Quota,
    QuotaViolationError,
    Rate,
    RecordingLevel,
    TokenBucket,
    WindowedCount,
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Reporter:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def init(self, metrics: Sequence[Metric]) -> None:
        self.seen += [("init", metric.name.name) for metric in metrics]

    def metric_change(self, metric: Metric) -> None:
        self.seen.append(("change", metric.name.name))

    def metric_removal(self, metric: Metric) -> None:
        self.seen.append(("removal", metric.name.name))

    def close(self) -> None:
        self.seen.append(("close", ""))


def name(text: str, **tags: str) -> MetricName:
    return MetricName(text, "group", tags=tags)


def test_names_are_equal_by_name_group_and_tags() -> None:
    assert MetricName("a", "g", "one", {"x": "1", "y": "2"}) == MetricName("a", "g", "two", {"y": "2", "x": "1"})
    assert (
        len({MetricName("a", "g"), MetricName("a", "h"), MetricName("a", "g", tags={"x": "1"}), MetricName("a", "g")})
        == 3
    )


def test_object_name_leaves_empty_tags_out() -> None:
    metric = MetricName("a", "producer-metrics", tags={"client-id": "c", "empty": ""})
    assert metric.object_name("kafka.producer") == "kafka.producer:type=producer-metrics,client-id=c"


def test_registry_adds_its_tags_and_own_tags_win() -> None:
    registry = Metrics(Clock(), config=MetricConfig(tags={"client-id": "c", "x": "1"}))
    assert registry.metric_name("a", "g", tags={"x": "2"}).tags == {"client-id": "c", "x": "2"}


def test_parents_receive_every_value() -> None:
    registry = Metrics(Clock())
    p1, p2 = registry.sensor("p1"), registry.sensor("p2")
    c1 = registry.sensor("c1", parents=[p1, p2])
    c2 = registry.sensor("c2", parents=[p1])
    g = registry.sensor("g", parents=[c1], resolution_seconds=1.0)
    counts = [one.add(name(one.name), WindowedCount()) for one in (p1, p2, c1, c2, g)]
    for one in (p1, p2, c1, c2, g):
        one.record(1.0, 0.0)
    assert [count.value(0.0) for count in counts] == [4, 3, 2, 1, 1]


def test_sensor_reachable_twice_is_refused() -> None:
    registry = Metrics(Clock())
    top = registry.sensor("top")
    left, right = registry.sensor("left", parents=[top]), registry.sensor("right", parents=[top])
    with pytest.raises(ValueError, match="reachable twice"):
        registry.sensor("bottom", parents=[left, right])
    assert registry.sensor("bottom", parents=[left]) in left.children


def test_value_beyond_the_quota_counts_and_raises() -> None:
    registry = Metrics(Clock())
    sensor = registry.sensor("s")
    up = sensor.add(name("up"), CumulativeSum(), MetricConfig(quota=Quota.upper_bound(5)))
    sensor.record(5, 0.0)
    with pytest.raises(QuotaViolationError) as caught:
        sensor.record(1, 0.0)
    assert up.value(0.0) == 6
    assert (caught.value.metric, caught.value.value, caught.value.bound) == (up, 6, 5)


def test_token_bucket_violates_its_quota_below_zero() -> None:
    registry = Metrics(Clock(), config=MetricConfig(quota=Quota.upper_bound(1), samples=2, window_seconds=1))
    sensor = registry.sensor("s")
    sensor.add(name("tokens"), TokenBucket())
    sensor.record(2, 0.0)
    with pytest.raises(QuotaViolationError):
        sensor.record(1, 0.0)
    sensor.check_quotas(1.0)


def test_quota_can_change_while_in_use() -> None:
    registry = Metrics(Clock())
    sensor = registry.sensor("s")
    rate = sensor.add(name("rate"), Rate(), MetricConfig(quota=Quota.upper_bound(1), samples=2, window_seconds=1))
    with pytest.raises(QuotaViolationError):
        sensor.record(100, 0.0)
    reporter = Reporter()
    registry.add_reporter(reporter)
    registry.configure(rate.name, rate.config.with_quota(Quota.upper_bound(1000)))
    sensor.record(100, 0.0)
    assert reporter.seen[-1] == ("change", "rate")


def test_check_of_quotas_can_be_left_out() -> None:
    registry = Metrics(Clock(), config=MetricConfig(quota=Quota.upper_bound(0)))
    registry.sensor("s").add(name("sum"), CumulativeSum())
    registry.sensor("s").record(1, 0.0, check_quotas=False)
    with pytest.raises(QuotaViolationError):
        registry.sensor("s").check_quotas(0.0)


def test_sensor_that_adds_up_refuses_quotas_and_histograms() -> None:
    registry = Metrics(Clock())
    sensor = registry.sensor("s", resolution_seconds=1.0)
    with pytest.raises(ValueError, match="no quota"):
        sensor.add(name("sum"), CumulativeSum(), MetricConfig(quota=Quota.upper_bound(1)))
    histogram = Percentiles.within(40, 0, 10, [Percentile(name("p50"), 50)])
    with pytest.raises(ValueError, match="histogram"):
        sensor.add_compound(histogram)
    exact = registry.sensor("exact")
    exact.add_compound(histogram)
    with pytest.raises(ValueError, match="histogram"):
        registry.sensor("child", parents=[exact], resolution_seconds=1.0)


@pytest.mark.parametrize(("configured", "recorded"), [("INFO", 1), ("DEBUG", 2), ("TRACE", 3)])
def test_recording_level_decides_which_sensors_record(configured: str, recorded: int) -> None:
    registry = Metrics(Clock(), config=MetricConfig(level=RecordingLevel[configured]))
    counts = []
    for level in RecordingLevel:
        sensor = registry.sensor(level.name, level=level)
        counts.append(sensor.add(name(level.name), WindowedCount()))
        sensor.record(1, 0.0)
    assert sum(count.value(0.0) for count in counts) == recorded


def test_same_name_returns_the_same_sensor_and_metric() -> None:
    registry = Metrics(Clock())
    sensor = registry.sensor("s")
    assert registry.sensor("s", resolution_seconds=5) is sensor
    assert sensor.add(name("avg"), Avg()) is sensor.add(name("avg"), Avg())


def test_taken_metric_name_is_refused() -> None:
    registry = Metrics(Clock())
    registry.add_gauge(name("a"), lambda: 1.0)
    with pytest.raises(ValueError, match="already exists"):
        registry.sensor("s").add(name("a"), Avg())


def test_removal_of_a_sensor_removes_metrics_and_children() -> None:
    registry = Metrics(Clock())
    reporter = Reporter()
    registry.add_reporter(reporter)
    parent = registry.sensor("p")
    child = registry.sensor("c", parents=[parent])
    parent.add(name("of-parent"), Avg())
    child.add_compound(Meter(name("rate"), name("total")))
    registry.remove_sensor("p")
    assert [one.name for one in registry.metrics] == ["count"]
    assert registry.sensor("c") is not child
    assert {what for how, what in reporter.seen if how == "removal"} == {"of-parent", "rate", "total"}


def test_removed_child_gives_its_last_values_to_the_parent() -> None:
    registry = Metrics(Clock())
    parent = registry.sensor("p")
    total = parent.add(name("sum"), CumulativeSum())
    child = registry.sensor("c", parents=[parent], resolution_seconds=10)
    child.record(5, 0.0)
    registry.remove_sensor("c")
    assert (total.value(0.0), parent.children) == (5, ())


def test_idle_sensors_expire_with_their_children() -> None:
    clock = Clock()
    registry = Metrics(clock)
    idle = registry.sensor("idle", expires_after=60)
    child = registry.sensor("child", parents=[idle])
    busy = registry.sensor("busy", expires_after=60)
    ever = registry.sensor("ever")
    busy.record(1, 50.0)
    clock.now = 60.0
    assert registry.expire() == []
    clock.now = 61.0
    assert registry.expire() == ["idle"]
    known = {"idle": idle, "child": child, "busy": busy, "ever": ever}
    assert [name for name, sensor in known.items() if registry.sensor(name) is sensor] == ["busy", "ever"]


def test_reporter_receives_existing_metrics_and_every_change() -> None:
    registry = Metrics(Clock())
    first, late = Reporter(), Reporter()
    registry.add_reporter(first)
    registry.add_gauge(name("a"), lambda: 1.0)
    registry.add_reporter(late)
    registry.remove_metric(name("a"))
    registry.close()
    assert first.seen == [("init", "count"), ("change", "a"), ("removal", "a"), ("close", "")]
    assert late.seen == [("init", "count"), ("init", "a"), ("removal", "a"), ("close", "")]


def test_failing_gauge_and_reporter_do_not_affect_others() -> None:
    class Failing(Reporter):
        def metric_change(self, metric: Metric) -> None:
            raise RuntimeError("broken")

    registry = Metrics(Clock(), reporters=[Failing()])
    registry.add_gauge(name("broken"), lambda: 1 / 0)
    registry.add_gauge(name("fine"), lambda: 2.0)
    values = {metric.name: value for metric, value in registry.values().items()}
    assert math.isnan(values["broken"])
    assert (values["fine"], values["count"]) == (2.0, 3.0)
