"""A client's metrics as OpenTelemetry instruments (extra ``otel``).

``metric_reporters=[OpenTelemetryMetrics()]`` shows every metric of a producer, consumer or admin client to a meter,
under the name of KIP-714. Nothing is measured twice. Without a reporter nothing is imported.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import trio

from triokafka.client.metrics.telemetry import telemetry_name
from triokafka.errors import ConfigurationError
from triokafka.metrics import Metric, MetricName
from triokafka.world import World

logger = logging.getLogger(__name__)

_SCOPE: Final = "triokafka"
_FRESH_MS: Final = 500
"""How long the values of one reading serve: a collection asks for each instrument by itself."""
_WAIT_SECONDS: Final = 1.0
"""Longest wait of a reader's thread for the event loop; then it gets the values of the reading before."""
_UNITS: Final = (("-ns-total", "ns"), ("byte-total", "By"), ("byte-rate", "By/s"), ("-bytes", "By"), ("-rate", "1/s"))


class OpenTelemetryMetrics:
    """A `MetricsReporter` for one client.

    ``record-send-total`` of ``producer-metrics`` becomes the counter ``org.apache.kafka.producer.record.send.total``,
    and other metrics become gauges; the tags become attributes. Values that are NaN and removed metrics are not
    observed. The values are read in the client's event loop, when a reader of the SDK collects; a reader waits for the
    loop at most a second, and so never holds the end of the program.

    Args:
        meter_provider: an OpenTelemetry ``MeterProvider``; None for the global one.
        accepts: whether a metric is shown; all by default.
        world: the world of the client, for tests with a simulated clock.

    Raises:
        ConfigurationError: OpenTelemetry is not installed.
    """

    def __init__(
        self,
        meter_provider: Any = None,
        *,
        accepts: Callable[[MetricName], bool] = lambda name: True,
        world: World | None = None,
    ) -> None:
        try:
            from opentelemetry import metrics
        except ImportError as error:
            raise ConfigurationError("metrics need OpenTelemetry: pip install 'triokafka[otel]'") from error
        if world is None:
            from triokafka.world.system import RealWorld

            world = RealWorld()
        self._meter = metrics.get_meter(_SCOPE, meter_provider=meter_provider)
        self._observation = metrics.Observation
        self._accepts = accepts
        self._world = world
        self._lock = threading.Lock()
        self._metrics: dict[str, dict[MetricName, Metric]] = {}
        self._token: trio.lowlevel.TrioToken | None = None
        self._values: dict[MetricName, float] = {}
        self._read_at_ms = -_FRESH_MS - 1

    def init(self, metrics: Sequence[Metric]) -> None:
        """Show metrics that exist."""
        for metric in metrics:
            self.metric_change(metric)

    def metric_change(self, metric: Metric) -> None:
        """Show a new metric."""
        if not self._accepts(metric.name):
            return
        if trio.lowlevel.in_trio_run():
            self._token = trio.lowlevel.current_trio_token()
        name = telemetry_name(metric.name)
        with self._lock:
            is_new = name not in self._metrics
            self._metrics.setdefault(name, {})[metric.name] = metric
        if is_new:
            grows = metric.name.name.endswith("-total")
            create = self._meter.create_observable_counter if grows else self._meter.create_observable_gauge
            create(name, [self._observer(name)], unit=_unit(metric.name), description=metric.name.description)

    def metric_removal(self, metric: Metric) -> None:
        """Show a metric no longer."""
        with self._lock:
            self._metrics.get(telemetry_name(metric.name), {}).pop(metric.name, None)

    def close(self) -> None:
        """Stop showing values. The instruments stay with the meter, which cannot remove them."""
        with self._lock:
            for known in self._metrics.values():
                known.clear()

    def _observer(self, name: str) -> Callable[[Any], list[Any]]:
        def observe(options: Any) -> list[Any]:
            values = self._fresh()
            with self._lock:
                shown = list(self._metrics.get(name, ()))
            return [self._observation(values[one], dict(one.tags)) for one in shown if one in values]

        return observe

    def _fresh(self) -> dict[MetricName, float]:
        """Return values that were read less than half a second ago, or else read them."""
        now_ms = self._world.wall_ms()
        if not 0 <= now_ms - self._read_at_ms <= _FRESH_MS:
            self._read_at_ms = now_ms  # also when the loop does not answer: one wait for each collection
            if trio.lowlevel.in_trio_run():
                self._read()
            elif self._token is not None:
                self._read_in_loop(self._token)
        return self._values

    def _read_in_loop(self, token: trio.lowlevel.TrioToken) -> None:
        done = threading.Event()

        def read() -> None:
            self._read()
            done.set()

        try:
            token.run_sync_soon(read)
        except trio.RunFinishedError:
            return
        done.wait(_WAIT_SECONDS)

    def _read(self) -> None:
        with self._lock:
            metrics = [metric for known in self._metrics.values() for metric in known.values()]
        now = self._world.now()
        values: dict[MetricName, float] = {}
        for metric in metrics:
            try:
                value = metric.value(now)
            except Exception:
                logger.exception("metric %r: reading failed", metric.name)
                continue
            if math.isfinite(value):
                values[metric.name] = value
        self._values = values


def _unit(name: MetricName) -> str:
    return next((unit for ending, unit in _UNITS if name.name.endswith(ending)), "")
