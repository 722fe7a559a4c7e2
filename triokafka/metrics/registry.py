"""A registry of sensors and metrics: one for each client and each broker."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from triokafka.metrics.metric import Gauge, Measurable, Metric
from triokafka.metrics.metric_config import MetricConfig, RecordingLevel
from triokafka.metrics.metric_name import MetricName
from triokafka.metrics.reporter import MetricsReporter
from triokafka.metrics.sensor import Sensor

logger = logging.getLogger(__name__)


class Metrics:
    """Sensors by name, and metrics by `MetricName`. A plain object for one thread, without tasks.

    The metric ``count`` of the group ``kafka-metrics-count`` is the number of metrics.

    Args:
        clock: returns the present time in seconds; `World.now`. Its zero does not matter.
        config: default configuration of sensors and metrics; its tags go into every `metric_name`.
        reporters: see `MetricsReporter`.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        config: MetricConfig | None = None,
        reporters: Sequence[MetricsReporter] = (),
    ) -> None:
        self.clock = clock
        self.config = MetricConfig() if config is None else config
        self._metrics: dict[MetricName, Metric] = {}
        self._sensors: dict[str, Sensor] = {}
        self._reporters: list[MetricsReporter] = []
        for reporter in reporters:
            self.add_reporter(reporter)
        name = self.metric_name("count", "kafka-metrics-count", "Number of registered metrics.")
        self.add_gauge(name, lambda: float(len(self._metrics)))

    @property
    def metrics(self) -> Mapping[MetricName, Metric]:
        """Every metric by name: a live, read-only view."""
        return MappingProxyType(self._metrics)

    def metric_name(
        self, name: str, group: str, description: str = "", tags: Mapping[str, str] | None = None
    ) -> MetricName:
        """Return a name with the registry's tags and these; these win."""
        return MetricName(name, group, description, {**self.config.tags, **(tags or {})})

    def sensor(
        self,
        name: str,
        *,
        config: MetricConfig | None = None,
        parents: Sequence[Sensor] = (),
        expires_after: float = math.inf,
        level: RecordingLevel = RecordingLevel.INFO,
        resolution_seconds: float = 0.0,
    ) -> Sensor:
        """Return the sensor of a name; make it from the other arguments if there is none.

        Args:
            parents: sensors that also get every value.
            expires_after: seconds without a value after which `expire` removes the sensor.
            level: the sensor records if the registry's level is at least this.
            resolution_seconds: see `Sensor`.

        Raises:
            ValueError: a parent is reachable twice.
        """
        known = self._sensors.get(name)
        if known is not None:
            return known
        sensor = self._sensors[name] = Sensor(
            name,
            self.config if config is None else config,
            self._register,
            parents=parents,
            expires_after=expires_after,
            level=level,
            resolution_seconds=resolution_seconds,
            now=self.clock() if expires_after < math.inf else 0.0,
        )
        return sensor

    def remove_sensor(self, name: str) -> None:
        """Remove a sensor with its metrics, and its child sensors. Nothing happens without such a sensor."""
        sensor = self._sensors.pop(name, None)
        if sensor is None:
            return
        sensor.detach()
        for metric in sensor.metrics:
            if self._metrics.get(metric.name) is metric:
                self.remove_metric(metric.name)
        for child in sensor.children:
            if self._sensors.get(child.name) is child:
                self.remove_sensor(child.name)

    def add_metric(self, name: MetricName, measurable: Measurable, config: MetricConfig | None = None) -> Metric:
        """Register a metric without a sensor.

        Raises:
            ValueError: the name is taken.
        """
        metric = Metric(name, measurable, self.config if config is None else config)
        self._register(metric)
        return metric

    def add_gauge(self, name: MetricName, read: Callable[[], float]) -> Metric:
        """Register a metric whose value is what ``read`` returns; it must not wait."""
        return self.add_metric(name, Gauge(read))

    def remove_metric(self, name: MetricName) -> None:
        """Remove a metric; nothing happens if there is none of this name."""
        metric = self._metrics.pop(name, None)
        if metric is not None:
            self._report(lambda reporter: reporter.metric_removal(metric))

    def configure(self, name: MetricName, config: MetricConfig) -> None:
        """Replace the configuration of a metric, for example its quota, and report the change."""
        metric = self._metrics[name]
        metric.config = config
        self._report(lambda reporter: reporter.metric_change(metric))

    def values(self) -> dict[MetricName, float]:
        """Return the present value of every metric. A gauge that raises is logged, and its value is NaN."""
        now = self.clock()
        return {name: self._read(metric, now) for name, metric in list(self._metrics.items())}

    def expire(self) -> list[str]:
        """Remove the sensors without a value for longer than their expiry time, and return their names."""
        now = self.clock()
        expired = [name for name, sensor in self._sensors.items() if sensor.expired(now)]
        for name in expired:
            self.remove_sensor(name)
        return expired

    def add_reporter(self, reporter: MetricsReporter) -> None:
        """Add a reporter, and give it the metrics that exist."""
        reporter.init(list(self._metrics.values()))
        self._reporters.append(reporter)

    @property
    def has_reporters(self) -> bool:
        """Whether there are reporters."""
        return bool(self._reporters)

    def close(self) -> None:
        """Close all reporters. The values stay readable."""
        reporters, self._reporters = self._reporters, []
        for reporter in reporters:
            reporter.close()

    def _register(self, metric: Metric) -> None:
        if metric.name in self._metrics:
            raise ValueError(f"a metric named {metric.name!r} already exists")
        self._metrics[metric.name] = metric
        self._report(lambda reporter: reporter.metric_change(metric))

    def _report(self, tell: Callable[[MetricsReporter], None]) -> None:
        for reporter in self._reporters:
            try:
                tell(reporter)
            except Exception:
                logger.exception("metrics reporter %r failed", reporter)

    def _read(self, metric: Metric, now: float) -> float:
        try:
            return metric.value(now)
        except Exception:
            logger.exception("metric %r: reading failed", metric.name)
            return math.nan
