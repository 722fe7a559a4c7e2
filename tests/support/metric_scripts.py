"""Scripts of recorded values, and the results of this package's statistics for them."""

from __future__ import annotations

import random
from collections.abc import Iterator

from triokafka.metrics import (
    Avg,
    CumulativeCount,
    CumulativeSum,
    Frequencies,
    Frequency,
    Max,
    Meter,
    MetricConfig,
    MetricName,
    Metrics,
    Min,
    Percentile,
    Percentiles,
    Quota,
    Rate,
    SimpleRate,
    TimeUnit,
    TokenBucket,
    Value,
    WindowedCount,
    WindowedSum,
)

_EPOCH_MS = 1_700_000_000_000


def scripts(seed: int = 7, count: int = 12) -> list[str]:
    """Return lines: ``config samples windowMs eventWindow bound``, ``record value timeMs``, ``measure timeMs``."""
    chosen = random.Random(seed)
    lines = []
    for _ in range(count):
        samples, window = chosen.choice([1, 2, 3, 11]), chosen.choice([1000, 30_000])
        events = chosen.choice([1, 3, 2**62, 2**62])
        lines.append(f"config {samples} {window} {events} {chosen.choice([0.5, 20, 1000])}")
        now = _EPOCH_MS
        for _ in range(60):
            now += int(chosen.choice([0, 1, 0.1, 0.5, 1, 1.5, samples, samples + 1]) * window * chosen.choice([0.3, 1]))
            if chosen.random() < 0.3:
                lines.append(f"measure {now}")
            else:
                lines.append(
                    f"record {chosen.choice([chosen.randrange(-20, 130), round(chosen.uniform(0, 100), 3)])} {now}"
                )
        lines.append(f"measure {now + samples * window}")
    return lines


def _name(name: str) -> MetricName:
    return MetricName(name, "group")


def measured(lines: list[str], *, resolution_seconds: float = 0.0) -> Iterator[dict[str, float]]:
    """Yield the measured values of each ``measure`` of a script; without histograms where values are added up."""
    for line in lines:
        match line.split():
            case ["config", samples, window, events, bound]:
                config = MetricConfig(
                    samples=int(samples),
                    window_seconds=int(window) / 1000,
                    event_window=int(events),
                    quota=None if resolution_seconds else Quota.upper_bound(float(bound)),
                )
                registry = Metrics(lambda: 0.0, config=config)
                sensor = registry.sensor("sensor", resolution_seconds=resolution_seconds)
                for name, stat in (
                    ("value", Value()),
                    ("avg", Avg()),
                    ("max", Max()),
                    ("min", Min()),
                    ("windowed-sum", WindowedSum()),
                    ("windowed-count", WindowedCount()),
                    ("cumulative-sum", CumulativeSum()),
                    ("cumulative-count", CumulativeCount()),
                    ("rate", Rate()),
                    ("count-per-minute", Rate(WindowedCount(), TimeUnit.MINUTES)),
                    ("simple-rate", SimpleRate()),
                    ("tokens", TokenBucket()),
                ):
                    sensor.add(_name(name), stat)
                sensor.add_compound(Meter(_name("meter-rate"), _name("meter-total"), WindowedCount()))
                if not resolution_seconds:
                    of_50, of_99 = Percentile(_name("p50"), 50), Percentile(_name("p90"), 90)
                    sensor.add_compound(Percentiles.within(400, 0.0, 100.0, [of_50, of_99]))
                    of_50, of_99 = Percentile(_name("linear-p50"), 50), Percentile(_name("linear-p99"), 99)
                    sensor.add_compound(Percentiles.within(400, 0.0, 100.0, [of_50, of_99], linear=True))
                    near = [Frequency(_name("near-10"), 10), Frequency(_name("near-90"), 90)]
                    sensor.add_compound(Frequencies(11, 0.0, 100.0, near))
            case ["record", value, now]:
                sensor.record(float(value), int(now) / 1000, check_quotas=False)
            case ["measure", now]:
                yield {
                    name.name: metric.value(int(now) / 1000)
                    for name, metric in registry.metrics.items()
                    if name.group == "group"
                }
