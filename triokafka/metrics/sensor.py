"""A sensor: the place where the program records values, which feeds several statistics and parent sensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from triokafka.metrics.histogram import Frequencies, Percentiles
from triokafka.metrics.metric import CompoundStat, Measurable, Metric, Stat
from triokafka.metrics.metric_config import MetricConfig, RecordingLevel
from triokafka.metrics.metric_name import MetricName
from triokafka.metrics.quota_violation import QuotaViolationError
from triokafka.metrics.token_bucket import TokenBucket

_INFINITY: Final = math.inf


class Sensor:
    """A named sensor of a registry. Make it with `Metrics.sensor`. It may be used by one thread only.

    With ``resolution_seconds`` above 0 it adds up the values of that long (number, sum, minimum, maximum) before it
    updates its statistics, so that recording costs a fraction of a microsecond. Reading a metric updates it first. The
    values of such a portion count as recorded at the time of the last one. Such a sensor has no percentiles and checks
    no quotas.
    """

    __slots__ = (
        "_at",
        "_children",
        "_count",
        "_due",
        "_expires_after",
        "_least",
        "_metrics",
        "_most",
        "_register",
        "_resolution",
        "_stats",
        "_total",
        "config",
        "name",
        "parents",
        "records",
    )

    def __init__(
        self,
        name: str,
        config: MetricConfig,
        register: Callable[[Metric], None],
        *,
        parents: Sequence[Sensor],
        expires_after: float,
        level: RecordingLevel,
        resolution_seconds: float,
        now: float,
    ) -> None:
        self.name = name
        self.config = config
        self._register = register
        self.parents = tuple(parents)
        """The sensors that also get every value."""
        self._children: list[Sensor] = []
        self._expires_after = expires_after
        self.records = config.level.records(level)
        """Whether the configured recording level includes this sensor."""
        self._resolution = resolution_seconds
        self._stats: list[tuple[Stat | CompoundStat, Metric]] = []
        self._metrics: dict[MetricName, Metric] = {}
        self._at = self._due = now
        self._count = 0
        self._total = 0.0
        self._least = _INFINITY
        self._most = -_INFINITY
        self._check_forest({})
        if resolution_seconds and any(parent._has_histogram() for parent in self.parents):
            raise ValueError(f"sensor {name}: a sensor that adds values up cannot feed a histogram")
        for parent in self.parents:
            parent._children.append(self)

    @property
    def metrics(self) -> list[Metric]:
        """The metrics of its statistics."""
        return list(self._metrics.values())

    @property
    def children(self) -> tuple[Sensor, ...]:
        """The sensors whose values this one also gets."""
        return tuple(self._children)

    def expired(self, now: float) -> bool:
        """Whether no value was recorded for longer than the sensor's expiry time."""
        return now - self._at > self._expires_after

    def add(self, name: MetricName, stat: Stat, config: MetricConfig | None = None) -> Metric:
        """Add a statistic as a metric, with its own configuration or the sensor's.

        Returns the metric, also when this sensor already has it under this name.

        Raises:
            ValueError: another part of the registry has a metric of this name, or the sensor adds values up and cannot
                feed this statistic.
        """
        known = self._metrics.get(name)
        return known if known is not None else self._add_metric(stat, name, stat, config)

    def add_compound(self, stat: CompoundStat, config: MetricConfig | None = None) -> list[Metric]:
        """Add a statistic of several metrics; see `add`."""
        if self._adds_up() and isinstance(stat, Percentiles | Frequencies):
            raise ValueError(f"sensor {self.name}: a sensor that adds values up cannot feed a histogram")
        return [
            self._add_metric(stat if not number else None, named.name, named.measurable, config)
            for number, named in enumerate(stat.named_measurables())
        ]

    def record(self, value: float, now: float, check_quotas: bool = True) -> None:
        """Record a value at ``now``, in seconds on the registry's clock.

        Raises:
            QuotaViolationError: a metric of this sensor or of a parent is outside of its quota now. The value counts.
        """
        if not self.records:
            return
        if not self._resolution:
            self._update(1, value, value, value, now, check_quotas)
            return
        if now >= self._due:
            self.flush()
            self._due = now + self._resolution
        self._count += 1
        self._total += value
        if value < self._least:
            self._least = value
        if value > self._most:
            self._most = value
        self._at = now

    def update(self, count: int, total: float, least: float, most: float, now: float) -> None:
        """Record values that the caller has added up; quotas are not checked."""
        if count and self.records:
            self._update(count, total, least, most, now, check_quotas=False)

    def flush(self) -> None:
        """Update the statistics with the values that were added up, here and in all child sensors."""
        for child in self._children:
            child.flush()
        if self._count:
            count, total, least, most = self._count, self._total, self._least, self._most
            self._clear()
            self._update(count, total, least, most, self._at, check_quotas=False)

    def check_quotas(self, now: float) -> None:
        """Compare the metrics that have a quota with it.

        Raises:
            QuotaViolationError: one is outside of its quota; of a token bucket: it is below zero.
        """
        for metric in self._metrics.values():
            self._check(metric, now)

    def detach(self) -> None:
        """Forget the parents: the registry has removed this sensor."""
        self.flush()
        for parent in self.parents:
            if self in parent._children:
                parent._children.remove(self)

    def _update(self, count: int, total: float, least: float, most: float, now: float, check_quotas: bool) -> None:
        self._at = now
        for stat, metric in self._stats:
            stat.update(metric.config, count, total, least, most, now)
        if check_quotas:
            for metric in self._metrics.values():
                self._check(metric, now)
        for parent in self.parents:
            if parent.records:
                parent._update(count, total, least, most, now, check_quotas)

    def _check(self, metric: Metric, now: float) -> None:
        quota = metric.config.quota
        if quota is None:
            return
        value = metric.measurable.measure(metric.config, now)
        if value < 0 if isinstance(metric.measurable, TokenBucket) else not quota.acceptable(value):
            raise QuotaViolationError(metric, value, quota.bound)

    def _add_metric(
        self,
        stat: Stat | CompoundStat | None,
        name: MetricName,
        measurable: Measurable,
        config: MetricConfig | None,
    ) -> Metric:
        config = self.config if config is None else config
        if self._resolution and config.quota is not None:
            raise ValueError(f"sensor {self.name}: a sensor that adds values up checks no quota")
        metric = Metric(name, measurable, config, self.flush)
        self._register(metric)
        self._metrics[name] = metric
        if stat is not None:
            self._stats.append((stat, metric))
        return metric

    def _adds_up(self) -> bool:
        return self._resolution > 0 or any(child._adds_up() for child in self._children)

    def _has_histogram(self) -> bool:
        if any(isinstance(stat, Percentiles | Frequencies) for stat, _ in self._stats):
            return True
        return any(parent._has_histogram() for parent in self.parents)

    def _clear(self) -> None:
        self._count = 0
        self._total = 0.0
        self._least = _INFINITY
        self._most = -_INFINITY

    def _check_forest(self, seen: dict[int, None]) -> None:
        if id(self) in seen:
            raise ValueError(f"sensor {self.name} is reachable twice: sensors and their parents must be a forest")
        seen[id(self)] = None
        for parent in self.parents:
            parent._check_forest(seen)
