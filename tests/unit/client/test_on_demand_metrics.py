"""A consumer's metrics are built on demand, and include everything that happened before."""

from __future__ import annotations

from typing import Any

from tests.support.simulated import simulated
from triokafka import Consumer
from triokafka.client.metrics.on_demand import OnDemandMetrics
from triokafka.metrics import MetricName
from triokafka.network.traffic import Traffic

NAME = MetricName("requests", "test", "", {})


class Counting:
    """Metrics that count the requests."""

    def __init__(self, traffic: Traffic) -> None:
        self.traffic = traffic
        self.requests = 0
        self.is_closed = False

    def drain(self) -> None:
        for node in self.traffic.nodes.values():
            self.requests += len(node.sizes)
            node.sizes.clear()

    def values(self) -> dict[MetricName, float]:
        self.drain()
        return {NAME: float(self.requests)}

    def close(self) -> None:
        self.is_closed = True


def counting() -> tuple[OnDemandMetrics, Traffic, list[Counting]]:
    """Return metrics, the traffic, and the metrics that were built."""
    traffic, built = Traffic(), []

    def build() -> Counting:
        built.append(Counting(traffic))
        return built[-1]

    return OnDemandMetrics(build, traffic, quiet_seconds=5.0), traffic, built


def test_metrics_without_readers_are_not_built_at_close() -> None:
    metrics, traffic, built = counting()
    traffic.node(1, "").sent(100, 1.0)
    metrics.close()
    assert not built
    assert metrics.values() == {NAME: 1.0}, "they can still be read"


def test_metrics_built_late_include_earlier_traffic() -> None:
    metrics, traffic, built = counting()
    for now in (1.0, 1.5, 2.5):
        traffic.node(1, "").sent(100, now)
    assert metrics.values() == {NAME: 3.0}
    metrics.close()
    assert built[0].is_closed and len(built) == 1


def test_due_values_are_drained_into_built_metrics() -> None:
    _, traffic, built = counting()
    for now in (1.0, 2.0, 7.0):
        traffic.node(1, "").sent(100, now)
    assert built[0].requests == 2


@simulated
async def test_reporters_receive_the_metrics_at_construction() -> None:
    class Reporter:
        def __init__(self) -> None:
            self.names: list[str] = []

        def configure(self, configs: Any) -> None: ...

        def init(self, metrics: Any) -> None:
            self.names += [metric.name.name for metric in metrics]

        def metric_change(self, metric: Any) -> None:
            self.names.append(metric.name.name)

        def metric_removal(self, metric: Any) -> None: ...

        def close(self) -> None: ...

    reporter = Reporter()
    Consumer(bootstrap_servers="localhost:1", metric_reporters=[reporter])
    assert "fetch-latency-avg" in reporter.names
