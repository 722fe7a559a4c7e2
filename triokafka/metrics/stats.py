"""Simple statistics: of all values since the start, and of the values in the sliding window."""

from __future__ import annotations

from typing import Final

from triokafka.metrics.metric_config import MetricConfig
from triokafka.metrics.sliding_samples import SlidingSamples

_NAN: Final = float("nan")


class Value:
    """The last recorded value; 0 before the first. Of several values that arrive at once, their maximum."""

    __slots__ = ("_value",)

    def __init__(self) -> None:
        self._value = 0.0

    def update(self, config: MetricConfig, count: int, total: float, least: float, most: float, now: float) -> None:
        """Record values."""
        self._value = most

    def measure(self, config: MetricConfig, now: float) -> float:
        """Return the value."""
        return self._value


class CumulativeSum:
    """The sum of all values ever recorded."""

    __slots__ = ("_total",)

    def __init__(self, initial: float = 0.0) -> None:
        self._total = initial

    def update(self, config: MetricConfig, count: int, total: float, least: float, most: float, now: float) -> None:
        """Record values."""
        self._total += total

    def measure(self, config: MetricConfig, now: float) -> float:
        """Return the sum."""
        return self._total


class CumulativeCount:
    """The number of values ever recorded."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def update(self, config: MetricConfig, count: int, total: float, least: float, most: float, now: float) -> None:
        """Record values."""
        self._count += count

    def measure(self, config: MetricConfig, now: float) -> float:
        """Return the number."""
        return float(self._count)


class _Windowed:
    """The values in the window; subclasses compute the statistic."""

    __slots__ = ("samples",)

    def __init__(self) -> None:
        self.samples = SlidingSamples()

    def update(self, config: MetricConfig, count: int, total: float, least: float, most: float, now: float) -> None:
        """Record values."""
        self.samples.update(config, count, total, least, most, now)


class WindowedSum(_Windowed):
    """The sum of the values in the window; 0 without values."""

    __slots__ = ()

    def measure(self, config: MetricConfig, now: float) -> float:
        """Return the sum."""
        return self.samples.total(config, now)


class WindowedCount(_Windowed):
    """The number of values in the window."""

    __slots__ = ()

    def measure(self, config: MetricConfig, now: float) -> float:
        """Return the number."""
        return float(self.samples.count(config, now))


class Avg(_Windowed):
    """The average of the values in the window; NaN without values."""

    __slots__ = ()

    def measure(self, config: MetricConfig, now: float) -> float:
        """Return the average."""
        count = self.samples.count(config, now)
        return self.samples.total(config, now) / count if count else _NAN


class Max(_Windowed):
    """The largest value in the window; NaN without values."""

    __slots__ = ()

    def measure(self, config: MetricConfig, now: float) -> float:
        """Return the largest value."""
        return max((sample.most for sample in self.samples.live(config, now) if sample.count), default=_NAN)


class Min(_Windowed):
    """The smallest value in the window; NaN without values."""

    __slots__ = ()

    def measure(self, config: MetricConfig, now: float) -> float:
        """Return the smallest value."""
        return min((sample.least for sample in self.samples.live(config, now) if sample.count), default=_NAN)
