"""The registry of one client, and the metrics that all clients have: connections, and traffic by broker.

The client's parts collect values in lists; about once a second, and before a caller reads, `ClientMetrics.drain` gives
them to the sensors in one call each. So the cost of a sensor does not depend on the number of values. A quiet client
does that every `_QUIET_SECONDS`, at most a part of a window: hundreds of idle consumers may share a processor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from triokafka.client.metrics.catalogue import CONNECTIONS, NODE, Declared, Group
from triokafka.metrics import (
    Avg,
    CompoundStat,
    CumulativeSum,
    Max,
    Meter,
    MetricConfig,
    MetricName,
    Metrics,
    MetricsReporter,
    RecordingLevel,
    Sensor,
    Stat,
    WindowedCount,
)
from triokafka.network.network_client import NetworkClient
from triokafka.network.traffic import NodeTraffic, Traffic
from triokafka.protocol.message import Request

_MS: Final = 1000.0
_QUIET_SECONDS: Final = 5.0
_PORTIONS_OF_A_WINDOW: Final = 6


class MetricGroup:
    """The sensors of one group and one set of tags, made from the declared metrics."""

    def __init__(self, registry: Metrics, group: str, declared: Group, tags: Mapping[str, str] | None = None) -> None:
        self._registry = registry
        self._group = group
        self._declared = declared
        self._tags = dict(tags or {})
        self._sensors: list[str] = []
        self._gauges: list[MetricName] = []

    def name(self, name: str) -> MetricName:
        """Return the full name of a declared metric."""
        declared: Declared = self._declared[name]
        return self._registry.metric_name(name, self._group, declared.meaning, self._tags)

    def sensor(self, sensor: str, stats: Mapping[str, Stat] | None = None, *compound: CompoundStat) -> Sensor:
        """Make a sensor with these statistics."""
        tags = "".join(f":{value}" for value in self._tags.values())
        made = self._registry.sensor(f"{self._group}{tags}:{sensor}")
        self._sensors.append(made.name)
        for name, stat in (stats or {}).items():
            made.add(self.name(name), stat)
        for several in compound:
            made.add_compound(several)
        return made

    def spread(self, name: str, *compound: CompoundStat) -> Sensor:
        """Make a sensor with average and maximum."""
        return self.sensor(name, {f"{name}-avg": Avg(), f"{name}-max": Max()}, *compound)

    def meter(self, name: str, *, counts: bool = False) -> Meter:
        """Make rate and total, of values or of their number."""
        stat = WindowedCount() if counts else None
        return Meter(self.name(f"{name}-rate"), self.name(f"{name}-total"), stat)

    def gauge(self, name: str, read: Callable[[], float]) -> None:
        """Make a metric with the value of a function."""
        metric = self.name(name)
        self._registry.add_gauge(metric, read)
        self._gauges.append(metric)

    def total(self, name: str, sensor: Sensor) -> None:
        """Add the sum of all values to a sensor."""
        sensor.add(self.name(name), CumulativeSum())

    def remove(self) -> None:
        """Remove all metrics of this group."""
        for sensor in self._sensors:
            self._registry.remove_sensor(sensor)
        for gauge in self._gauges:
            self._registry.remove_metric(gauge)


def feed(sensor: Sensor, values: Sequence[float], now: float, *, scale: float = 1.0) -> None:
    """Record values that were collected."""
    if values:
        sensor.update(len(values), sum(values) * scale, min(values) * scale, max(values) * scale, now)


class _TrafficSensors:
    def __init__(self, group: MetricGroup) -> None:
        self.sent = group.spread("request-size", group.meter("outgoing-byte"), group.meter("request", counts=True))
        self.received = group.sensor(
            "received", None, group.meter("incoming-byte"), group.meter("response", counts=True)
        )


class _NodeSensors(_TrafficSensors):
    def __init__(self, group: MetricGroup) -> None:
        super().__init__(group)
        self.latency = group.spread("request-latency")


def quiet_seconds(window_seconds: float) -> float:
    """Return how long the values of a quiet client may wait, with windows of this length."""
    return min(_QUIET_SECONDS, window_seconds / _PORTIONS_OF_A_WINDOW)


class ClientMetrics:
    """The metrics of one client.

    Args:
        kind: ``producer``, ``consumer`` or ``admin-client``.
        on_answers: receives the responses by request type: sizes, and seconds; set by the client's own metrics.
    """

    def __init__(
        self,
        kind: str,
        client_id: str,
        *,
        clock: Callable[[], float],
        traffic: Traffic,
        samples: int,
        window_seconds: float,
        level: str,
        reporters: Iterable[MetricsReporter] = (),
    ) -> None:
        config = MetricConfig(
            samples=samples,
            window_seconds=window_seconds,
            level=RecordingLevel[level],
            tags={"client-id": client_id},
        )
        self.kind = kind
        self.registry = Metrics(clock, config=config, reporters=list(reporters))
        self.at = 0.0
        """When the values of the present `drain` were recorded."""
        self._traffic = traffic
        self.main = MetricGroup(self.registry, f"{kind}-metrics", CONNECTIONS)
        group = self.main
        self._opened = group.sensor(
            "opened",
            None,
            group.meter("connection-creation", counts=True),
            group.meter("successful-authentication", counts=True),
        )
        self._closed = group.sensor("closed", None, group.meter("connection-close", counts=True))
        self._refused = group.sensor("refused", None, group.meter("failed-authentication", counts=True))
        self._operations = group.sensor("operations", None, group.meter("network-io", counts=True))
        self._all = _TrafficSensors(group)
        self._nodes: dict[str, _NodeSensors] = {}
        self._parts: list[Callable[[dict[str, list[float]], dict[str, list[float]]], None]] = []
        traffic.drain_to(self.drain, quiet_seconds=quiet_seconds(window_seconds))

    def watch(self, network: NetworkClient) -> None:
        """Show the connections of the client's network."""
        self.main.gauge(
            "connection-count", lambda: float(sum(status.connected for status in network.broker_statuses()))
        )

    def add_part(self, drain: Callable[[dict[str, list[float]], dict[str, list[float]]], None]) -> None:
        """Call ``drain`` with the seconds of responses, and with throttle times, by request, each time."""
        self._parts.append(drain)

    def group(self, suffix: str, declared: Group, **tags: str) -> MetricGroup:
        """Return a group ``<kind>-<suffix>``; tags with ``_`` for ``-``."""
        named = {key.replace("_", "-"): value for key, value in tags.items()}
        return MetricGroup(self.registry, f"{self.kind}-{suffix}", declared, named)

    def values(self) -> dict[MetricName, float]:
        """Return the present value of every metric by its name."""
        self.drain()
        return self.registry.values()

    def close(self) -> None:
        """Give the last values to the reporters, and close those. The values can still be read."""
        if self.registry.has_reporters:
            self.drain()
        self.registry.close()

    def drain(self) -> None:
        """Give the collected values to the sensors, at the time of the last request."""
        traffic = self._traffic
        now = self.at = traffic.at or self.registry.clock()
        for sensor, events in (
            (self._opened, traffic.opened),
            (self._closed, traffic.closed),
            (self._refused, traffic.refused),
        ):
            feed(sensor, events, now)
            events.clear()
        seconds: dict[str, list[float]] = {}
        throttled: dict[str, list[float]] = {}
        for label, node in traffic.nodes.items():
            self._drain_node(label, node, seconds, throttled, now)
        for part in self._parts:
            part(seconds, throttled)

    def _drain_node(
        self,
        label: str,
        node: NodeTraffic,
        seconds: dict[str, list[float]],
        throttled: dict[str, list[float]],
        now: float,
    ) -> None:
        if not node.sizes and not node.answers:
            return
        sensors = self._nodes.get(label)
        if sensors is None:
            sensors = self._nodes[label] = _NodeSensors(self.group("node-metrics", NODE, node_id=label))
        sizes, node.sizes = node.sizes, []
        answers, node.answers = node.answers, []
        throttles, node.throttles = node.throttles, []
        for traffic in (sensors, self._all):
            feed(traffic.sent, sizes, now)
        feed(self._operations, sizes, now)
        if answers:
            kinds, received, times = zip(*answers, strict=True)
            for traffic in (sensors, self._all):
                feed(traffic.received, received, now)
            feed(self._operations, received, now)
            feed(sensors.latency, times, now, scale=_MS)
            if kinds.count(kinds[0]) == len(kinds):
                _of(seconds, kinds[0]).extend(times)
            else:
                for kind, time in zip(kinds, times, strict=True):
                    _of(seconds, kind).append(time)
        for kind, time in throttles:
            _of(throttled, kind).append(time)


def _of(values: dict[str, list[float]], kind: type[Request[Any]]) -> list[float]:
    return values.setdefault(kind.__name__.removesuffix("Request"), [])
