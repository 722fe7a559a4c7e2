"""Clients push the metrics that a cluster's subscriptions request (KIP-714)."""

from __future__ import annotations

import pytest
import trio

import triokafka
from triokafka.broker_stub.metrics.sample import Sample
from triokafka.client.admin import ConfigResource
from triokafka.client.metrics.telemetry import TelemetryState, telemetry_name
from triokafka.errors import UnknownSubscriptionIdError
from triokafka.metrics import MetricName
from triokafka.protocol.api.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from triokafka.testing import RunningBroker, running_broker


def state(*metrics: str, delta: bool = True) -> TelemetryState:
    made = TelemetryState()
    made.answered(
        GetTelemetrySubscriptionsResponse(
            requested_metrics=list(metrics), delta_temporality=delta, push_interval_ms=1000, telemetry_max_bytes=1
        )
    )
    return made


def test_telemetry_uses_kafkas_metric_names() -> None:
    name = MetricName("rebalance-latency-avg", "consumer-coordinator-metrics")
    assert telemetry_name(name) == "org.apache.kafka.consumer.coordinator.rebalance.latency.avg"


def test_prefixes_select_metrics_and_sums_are_deltas() -> None:
    found = state("org.apache.kafka.producer.record", "org.apache.kafka.producer.node")
    total = MetricName("record-send-total", "producer-metrics", tags={"client-id": "c"})
    latency = MetricName("request-latency-avg", "producer-node-metrics", tags={"client-id": "c", "node-id": "node-1"})
    other = MetricName("batch-size-avg", "producer-metrics")
    points = found.points({total: 5.0, latency: 2.5, other: 1.0}, 10)
    assert [(point.value, point.monotonic, dict(point.attributes)) for point in points] == [
        (5.0, True, {}),
        (2.5, False, {"node_id": "node-1"}),
    ]
    assert [point.value for point in found.points({total: 7.0, latency: float("nan")}, 20)] == [2.0]
    assert state(delta=False).points({total: 5.0}, 10) == []
    assert [point.value for point in state("*", delta=False).points({total: 5.0}, 10)] == [5.0]


def test_unknown_subscription_is_requested_again_and_invalid_metrics_end_the_pushes() -> None:
    found = state("*")
    assert found.pushed(UnknownSubscriptionIdError.code) and not found.subscribed
    assert not found.pushed(42)


@pytest.mark.parametrize("interval_ms", [1, 0, -1, -(2**31)])
def test_interval_is_never_shorter_than_a_broker_may_configure(interval_ms: int) -> None:
    found = TelemetryState()
    found.answered(GetTelemetrySubscriptionsResponse(push_interval_ms=interval_ms, telemetry_max_bytes=1))
    assert found.interval == 0.1


def pushed(broker: RunningBroker, name: str) -> list[Sample]:
    return [sample for sample in broker.broker.metrics() if sample.name == f"kafka_client:type={name}"]


async def wait_for(broker: RunningBroker, name: str, at_least: float) -> Sample:
    with trio.fail_after(120):
        while True:
            found = [sample for sample in pushed(broker, name) if sample.value >= at_least]
            if found:
                return found[0]
            await trio.sleep(0.05)


async def test_broker_exports_pushed_metrics_and_the_last_push() -> None:
    async with running_broker() as broker:
        address = broker.bootstrap_servers
        async with triokafka.AdminClient(bootstrap_servers=address, enable_metrics_push=False) as admin:
            resource = ConfigResource.client_metrics("all")
            wanted = {"metrics": "org.apache.kafka.producer.", "interval.ms": "100", "match": "client_id=watched"}
            await admin.incremental_alter_configs({resource: wanted})
        async with triokafka.Producer(bootstrap_servers=address, client_id="watched") as producer:
            await (await producer.send("orders", b"x"))
            found = await wait_for(broker, "producer.record.send.total", 1)
            assert found.tags["client_id"] == "watched"
            for _ in range(5):
                await producer.send("orders", b"x")
            await producer.flush()
        (last,) = pushed(broker, "producer.record.send.total")
        assert last.value == 6
        (instance,) = broker.broker.dispatcher.services.telemetry.instances.values()
        assert instance.terminating
        assert (instance.facts.client_software_name, pushed(broker, "consumer.request.total")) == ("triokafka", [])


async def test_cluster_without_telemetry_gets_no_requests() -> None:
    async with running_broker() as broker, triokafka.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        await (await producer.send("orders", b"x"))
        assert not broker.broker.dispatcher.services.telemetry.instances


@pytest.mark.parametrize("option", [True, False])
def test_pushing_is_an_option(option: bool) -> None:
    triokafka.Consumer(bootstrap_servers="localhost:9092", enable_metrics_push=option)
