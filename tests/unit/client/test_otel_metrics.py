"""A client's metrics reach OpenTelemetry with their names, kinds, units and attributes."""

from __future__ import annotations

import math
import sys
from functools import partial
from itertools import count
from threading import Thread
from typing import Any

import pytest
import trio
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Gauge, InMemoryMetricReader, Sum

import triokafka
from triokafka.client.otel_metrics import OpenTelemetryMetrics
from triokafka.errors import ConfigurationError
from triokafka.metrics import MetricName, Metrics
from triokafka.testing import running_broker
from triokafka.world import World
from triokafka.world.system import RealWorld

SENT = "org.apache.kafka.producer.record.send.total"


def collected(reader: InMemoryMetricReader) -> dict[str, Any]:
    """Return the metrics of one collection by name."""
    found = reader.get_metrics_data()
    assert found is not None
    return {
        one.name: one
        for resource in found.resource_metrics
        for scope in resource.scope_metrics
        for one in scope.metrics
    }


async def test_producer_is_observed_with_kafkas_metrics_until_it_is_closed() -> None:
    reader = InMemoryMetricReader()
    shown = OpenTelemetryMetrics(MeterProvider([reader]))
    async with (
        running_broker() as broker,
        triokafka.Producer(
            bootstrap_servers=broker.bootstrap_servers, client_id="till", metric_reporters=[shown]
        ) as producer,
    ):
        await (await producer.send("orders", b"x"))
        producer.kafka_metrics()  # sensors publish their recorded values
        found = await trio.to_thread.run_sync(collected, reader)
    sent, size = found[SENT], found["org.apache.kafka.producer.batch.size.avg"]
    assert isinstance(sent.data, Sum)
    assert sent.data.is_monotonic
    ((point),) = sent.data.data_points
    assert (point.value, dict(point.attributes)) == (1, {"client-id": "till"})
    assert isinstance(size.data, Gauge)
    assert size.description == "Average size of a sent batch, after compression."
    assert found["org.apache.kafka.producer.buffer.total.bytes"].unit == "By"
    by_topic = found["org.apache.kafka.producer.topic.record.send.total"].data.data_points
    assert [dict(one.attributes) for one in by_topic] == [{"client-id": "till", "topic": "orders"}]


def registry(values: dict[str, float], world: World | None = None) -> tuple[Metrics, InMemoryMetricReader]:
    reader = InMemoryMetricReader()
    shown = OpenTelemetryMetrics(MeterProvider([reader]), world=world)
    metrics = Metrics(clock=lambda: 0.0, reporters=[shown])
    for name in values:
        metrics.add_gauge(MetricName(name, "g"), partial(values.__getitem__, name))
    return metrics, reader


async def test_metric_without_a_value_and_a_removed_one_are_not_observed() -> None:
    metrics, reader = registry({"good": 1.0, "none": math.nan, "gone": 2.0})
    metrics.remove_metric(MetricName("gone", "g"))
    assert {name for name in collected(reader) if ".g." in name} == {"org.apache.kafka.g.good"}


async def test_failing_metric_does_not_hide_the_others() -> None:
    values = {"good": 1.0, "bad": 2.0}
    _, reader = registry(values)
    del values["bad"]
    assert {name for name in collected(reader) if ".g." in name} == {"org.apache.kafka.g.good"}


class HastyWorld(RealWorld):
    """A world whose wall clock advances a minute per reading, so that no value is cached."""

    def __init__(self) -> None:
        super().__init__()
        self._minutes = count()

    def wall_ms(self) -> int:
        return next(self._minutes) * 60_000


async def test_reader_gets_the_last_values_when_the_loop_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The collection runs in a thread while the event loop waits for it, as at the shutdown of a provider."""
    monkeypatch.setattr("triokafka.client.otel_metrics._WAIT_SECONDS", 0.01)
    values = {"good": 1.0}
    _, reader = registry(values, HastyWorld())
    assert ".g." in str(list(collected(reader)))
    values["good"] = 2.0
    result: list[dict[str, Any]] = []
    thread = Thread(target=lambda: result.append(collected(reader)))
    thread.start()
    thread.join(60)
    assert [point.value for point in result[0]["org.apache.kafka.g.good"].data.data_points] == [1.0]


def test_program_continues_after_the_loop_has_ended() -> None:
    reader = InMemoryMetricReader()

    async def main() -> None:
        metrics = Metrics(clock=lambda: 0.0, reporters=[OpenTelemetryMetrics(MeterProvider([reader]))])
        metrics.close()

    trio.run(main)
    found = reader.get_metrics_data()
    assert found is None or not any(
        point for resource in found.resource_metrics for scope in resource.scope_metrics for point in scope.metrics
    )


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'triokafka\[otel\]'"):
        OpenTelemetryMetrics()
