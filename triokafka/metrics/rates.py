"""Rates: a statistic of the window divided by the length of the window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from triokafka.metrics.metric import NamedMeasurable
from triokafka.metrics.metric_config import MetricConfig, TimeUnit
from triokafka.metrics.metric_name import MetricName
from triokafka.metrics.stats import CumulativeCount, CumulativeSum, WindowedCount, WindowedSum

_SHORTEST_WINDOW: Final = 0.001


class Rate:
    """The sum of values (with a `WindowedCount`: the number of values) per unit of time.

    The divisor is the time since the oldest sample in the window. If that has fewer than ``samples - 1`` whole windows,
    the missing whole windows are added, so that rates are not huge after the start. It is at least a millisecond.
    """

    __slots__ = ("_stat", "_unit")

    def __init__(self, stat: WindowedSum | WindowedCount | None = None, unit: TimeUnit = TimeUnit.SECONDS) -> None:
        self._stat = WindowedSum() if stat is None else stat
        self._unit = unit.value

    def update(self, config: MetricConfig, count: int, total: float, least: float, most: float, now: float) -> None:
        """Record values."""
        self._stat.update(config, count, total, least, most, now)

    def measure(self, config: MetricConfig, now: float) -> float:
        """Return the rate."""
        value = self._stat.measure(config, now)
        return value / (self.window_seconds(config, now) / self._unit)

    def window_seconds(self, config: MetricConfig, now: float) -> float:
        """Return the divisor in seconds; the throttle time of a quota is computed with it."""
        elapsed = self._stat.samples.elapsed(config, now)
        missing = config.samples - 1 - int(elapsed / config.window_seconds)
        if missing > 0:
            elapsed += missing * config.window_seconds
        return max(elapsed, _SHORTEST_WINDOW)


class SimpleRate:
    """A rate per second whose divisor is the time since the oldest sample, and at least one window."""

    __slots__ = ("_stat",)

    def __init__(self) -> None:
        self._stat = WindowedSum()

    def update(self, config: MetricConfig, count: int, total: float, least: float, most: float, now: float) -> None:
        """Record values."""
        self._stat.update(config, count, total, least, most, now)

    def measure(self, config: MetricConfig, now: float) -> float:
        """Return the rate."""
        value = self._stat.measure(config, now)
        return value / self.window_seconds(config, now)

    def window_seconds(self, config: MetricConfig, now: float) -> float:
        """Return the divisor in seconds."""
        return max(self._stat.samples.elapsed(config, now), config.window_seconds)


class Meter:
    """A rate together with the total since the start: two metrics, ``…-rate`` and ``…-total``.

    With a `WindowedCount` both count values, else they sum them up.
    """

    __slots__ = ("_names", "_rate", "_total")

    def __init__(
        self,
        rate_name: MetricName,
        total_name: MetricName,
        stat: WindowedSum | WindowedCount | None = None,
        unit: TimeUnit = TimeUnit.SECONDS,
    ) -> None:
        counts = isinstance(stat, WindowedCount)
        self._rate = Rate(stat, unit)
        self._total: CumulativeCount | CumulativeSum = CumulativeCount() if counts else CumulativeSum()
        self._names = (rate_name, total_name)

    def update(self, config: MetricConfig, count: int, total: float, least: float, most: float, now: float) -> None:
        """Record values."""
        self._rate.update(config, count, total, least, most, now)
        self._total.update(config, count, total, least, most, now)

    def named_measurables(self) -> Iterator[NamedMeasurable]:
        """Yield the rate and the total."""
        yield NamedMeasurable(self._names[0], self._rate)
        yield NamedMeasurable(self._names[1], self._total)
