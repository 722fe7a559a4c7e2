"""The clients' metrics under Kafka's names: all are declared, and the values after known traffic are right."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
import trio

import triokafka
from tests.support.scripted_producing import scripted
from tests.support.simulated import simulated
from triokafka.client.metrics.catalogue import GROUPS
from triokafka.metrics import MetricName
from triokafka.testing import running_broker


def of_group(values: Mapping[MetricName, float], group: str, **tags: str) -> dict[str, float]:
    wanted = {key.replace("_", "-"): value for key, value in tags.items()}
    return {
        name.name: value
        for name, value in values.items()
        if name.group == group and {key: tag for key, tag in name.tags.items() if key != "client-id"} == wanted
    }


def test_every_metric_is_declared_with_unit_and_meaning() -> None:
    for _, declared in GROUPS.values():
        assert all(one.unit and one.meaning.endswith(".") for one in declared.values())


@simulated
async def test_producer_shows_rates_totals_and_sizes() -> None:
    async with scripted(orders=2) as s, s.producer(linger_ms=100, client_id="c") as producer:
        await producer.partitions_for("orders")
        s.broker.throttle_time_ms = 500
        for number in range(10):
            await producer.send("orders", b"x" * 1000, partition=number % 2)
        await producer.flush()
        values = producer.kafka_metrics()
        main = of_group(values, "producer-metrics")
        assert (main["record-send-total"], main["record-error-total"], main["record-retry-total"]) == (10, 0, 0)
        assert main["record-send-rate"] == pytest.approx(10 / 30, rel=0.1)
        assert 5000 < main["batch-size-avg"] < 6000 and main["batch-size-avg"] == main["batch-size-max"]
        assert main["records-per-request-avg"] == 10
        assert 1000 < main["record-size-avg"] < 1100
        assert main["compression-rate-avg"] == 1
        assert main["record-queue-time-max"] == pytest.approx(7, abs=5)
        assert main["produce-throttle-time-max"] == 500
        assert main["connection-count"] == 1 and main["connection-creation-total"] >= 1
        assert main["request-total"] == main["response-total"] > 3
        assert main["network-io-total"] == 2 * main["request-total"]
        assert main["outgoing-byte-total"] > 10_000
        assert main["flush-time-ns-total"] > 0
        topic = of_group(values, "producer-topic-metrics", topic="orders")
        assert (topic["record-send-total"], topic["byte-total"]) == (10, 2 * main["batch-size-avg"])
        nodes = [name.tags["node-id"] for name in values if name.group == "producer-node-metrics"]
        assert set(nodes) == {"node--1", "node-1"} or "node--1" in nodes
        assert all(name.tags["client-id"] == "c" for name in values)


@simulated
async def test_rates_fall_to_0_and_totals_stay_when_nothing_happens() -> None:
    async with scripted(orders=1) as s, s.producer() as producer:
        await (await producer.send("orders", b"x"))
        await trio.sleep(100)
        main = of_group(producer.kafka_metrics(), "producer-metrics")
        assert (main["record-send-rate"], main["record-send-total"]) == (0, 1)
        assert math.isnan(main["batch-size-avg"])


async def test_consumer_shows_fetches_lag_and_its_group() -> None:
    async with running_broker(num_partitions=1) as broker:
        address = broker.bootstrap_servers
        async with triokafka.Producer(bootstrap_servers=address) as producer:
            for _ in range(10):
                await producer.send("orders", b"x" * 100)
            await producer.flush()
            of_producer = producer.kafka_metrics()
        for protocol in ("classic", "consumer"):
            async with triokafka.Consumer(
                "orders",
                bootstrap_servers=address,
                group_id=protocol,
                group_protocol=protocol,
                auto_offset_reset="earliest",
            ) as consumer:
                with trio.fail_after(60):
                    count = 0
                    while count < 6:
                        batches = await consumer.poll(timeout_ms=1000, max_records=6 - count)
                        count += sum(map(len, batches.values()))
                    await consumer.commit()
                values = consumer.kafka_metrics()
                fetch = of_group(values, "consumer-fetch-manager-metrics")
                assert fetch["records-consumed-total"] == 6
                assert fetch["bytes-consumed-total"] > 1000
                assert fetch["fetch-total"] >= 1 and fetch["fetch-latency-max"] > 0
                topic = of_group(values, "consumer-fetch-manager-metrics", topic="orders")
                assert topic["records-consumed-total"] == 6
                partition = of_group(values, "consumer-fetch-manager-metrics", topic="orders", partition="0")
                assert (partition["records-lag"], partition["records-lead"]) == (4, 6)
                assert partition["preferred-read-replica"] == -1
                assert fetch["records-lag-max"] >= 4 and fetch["records-lead-min"] <= 6
                group = of_group(values, "consumer-coordinator-metrics")
                assert (group["assigned-partitions"], group["commit-total"]) == (1, 1)
                assert group["rebalance-total"] == 1
                assert group["last-rebalance-seconds-ago"] >= 0
                main = of_group(values, "consumer-metrics")
                assert main["commit-sync-time-ns-total"] > 0 and main["last-poll-seconds-ago"] >= 0
                if protocol == "classic":
                    assert (group["join-total"], group["sync-total"]) == (1, 1) or group["join-total"] == 2
        async with triokafka.AdminClient(bootstrap_servers=address) as admin:
            await admin.list_topics()
            of_admin = admin.kafka_metrics()
        assert of_group(of_admin, "admin-client-metrics")["request-total"] >= 2
    for shown, kind in ((of_producer, "producer"), (values, "consumer"), (of_admin, "admin-client")):
        found: dict[str, set[str]] = {}
        for one in shown:
            suffix = {"topic": " (topic)", "topic partition": " (partition)"}.get(
                " ".join(tag for tag in one.tags if tag in ("topic", "partition")), ""
            )
            full = one.group + (suffix if one.group.startswith("consumer-fetch") else "")
            found.setdefault(full, set()).add(one.name)
        declared = {g: set(names) for g, (_, names) in GROUPS.items() if g.startswith(kind) or g.startswith("kafka")}
        assert found == declared


async def test_sensors_of_revoked_partitions_are_removed() -> None:
    async with running_broker(num_partitions=2) as broker:
        first, second = (triokafka.TopicPartition("orders", number) for number in range(2))
        async with triokafka.Consumer(
            bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([first, second])
            await consumer.position(first)
            await consumer.position(second)
            assert len(of_partitions(consumer)) == 2
            consumer.assign([second])
            assert of_partitions(consumer) == {"1"}


def of_partitions(consumer: triokafka.Consumer) -> set[str]:
    return {name.tags["partition"] for name in consumer.kafka_metrics() if "partition" in name.tags}


@simulated
async def test_reporters_receive_metrics_and_are_closed() -> None:
    class Reporter:
        def __init__(self) -> None:
            self.names: set[str] = set()
            self.closed = False

        def init(self, metrics: object) -> None:
            pass

        def metric_change(self, metric: triokafka.metrics.Metric) -> None:
            self.names.add(metric.name.name)

        def metric_removal(self, metric: triokafka.metrics.Metric) -> None:
            pass

        def close(self) -> None:
            self.closed = True

    reporter = Reporter()
    async with scripted(orders=1) as s, s.producer(metric_reporters=[reporter]) as producer:
        await (await producer.send("orders", b"x"))
    assert reporter.closed and {"record-send-rate", "request-latency-max"} <= reporter.names


def test_wrong_reporter_is_refused() -> None:
    with pytest.raises(triokafka.errors.ConfigurationError, match="metric_removal"):
        triokafka.Producer(bootstrap_servers="localhost:9092", metric_reporters=[object()])  # type: ignore[list-item]
