"""A registered metric: a name, something that can be measured, and a configuration. And the interfaces of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from triokafka.metrics.metric_config import MetricConfig
from triokafka.metrics.metric_name import MetricName
from triokafka.named_tuple import NamedTuple


class Measurable(Protocol):
    """Something with a value at a time, in seconds on the registry's clock."""

    def measure(self, config: MetricConfig, now: float) -> float:
        """Return the value at ``now``."""


class Stat(Measurable, Protocol):
    """A measurable that is computed from recorded values."""

    def update(self, config: MetricConfig, count: int, total: float, least: float, most: float, now: float) -> None:
        """Record ``count`` values with their sum, minimum and maximum, of which the last was recorded at ``now``."""


class NamedMeasurable(NamedTuple):
    """One metric of a compound statistic, and the object that computes its value."""

    name: MetricName
    measurable: Measurable


class CompoundStat(Protocol):
    """A statistic with several metrics, such as percentiles."""

    def update(self, config: MetricConfig, count: int, total: float, least: float, most: float, now: float) -> None:
        """Record values, see `Stat`."""

    def named_measurables(self) -> Iterator[NamedMeasurable]:
        """Yield its metrics."""


class Gauge:
    """A measurable that calls a function; also counts and texts can be values."""

    __slots__ = ("_read",)

    def __init__(self, read: Callable[[], float]) -> None:
        self._read = read

    def measure(self, config: MetricConfig, now: float) -> float:
        """Return what the function returns."""
        return self._read()


class Metric:
    """A metric of a registry. Replace ``config`` to change its quota or window while it is in use."""

    __slots__ = ("_flush", "config", "measurable", "name")

    def __init__(
        self, name: MetricName, measurable: Measurable, config: MetricConfig, flush: Callable[[], None] | None = None
    ) -> None:
        self.name = name
        self.measurable = measurable
        self.config = config
        self._flush = flush

    def value(self, now: float) -> float:
        """Return the value at ``now``, in seconds on the registry's clock."""
        if self._flush is not None:
            self._flush()
        return self.measurable.measure(self.config, now)

    def __repr__(self) -> str:
        return f"Metric({self.name!r})"
