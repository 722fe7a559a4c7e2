"""A producer's metrics under Kafka's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from triokafka.client.metrics.catalogue import CONNECTIONS, PRODUCER, PRODUCER_TOPIC
from triokafka.client.metrics.client_metrics import ClientMetrics, feed
from triokafka.client.producer.accumulator import Accumulator
from triokafka.client.producer.batch_log import BatchLog
from triokafka.client.producer.call_times import CallTimes
from triokafka.metrics import Avg, Rate
from triokafka.network.network_client import NetworkClient

_MS: Final = 1000.0
_NS: Final = 1e9
_NAN: Final = float("nan")


class _TopicSensors:
    def __init__(self, metrics: ClientMetrics, topic: str) -> None:
        group = metrics.group("topic-metrics", PRODUCER_TOPIC, topic=topic)
        self.bytes = group.sensor("bytes", None, group.meter("byte"))
        self.compression = group.sensor("compression", {"compression-rate": Avg()})
        self.records = group.sensor("records", None, group.meter("record-send"))
        self.retries = group.sensor("retries", None, group.meter("record-retry"))
        self.errors = group.sensor("errors", None, group.meter("record-error"))


class ProducerMetrics:
    """Adds the metrics of one producer to those of its ``client``, which keeps this object.

    ``batches`` is filled by the sender; its sums go to the ``counters``.
    """

    def __init__(
        self,
        client: ClientMetrics,
        batches: BatchLog,
        accumulator: Accumulator,
        counters: dict[str, float],
        network: NetworkClient,
        times: CallTimes,
    ) -> None:
        self._client = client
        self._batches = batches
        self._counters = counters
        self._network = network
        self._pool = pool = accumulator.pool
        self._topics: dict[str, _TopicSensors] = {}
        self._seen = dict.fromkeys(("batch_split_total", "request_total"), 0.0)
        self._waited = 0.0
        self._exhausted_calls = 0
        client.watch(network)
        group = client.group("metrics", {**CONNECTIONS, **PRODUCER})
        self._size = group.spread("batch-size")
        self._queue = group.spread("record-queue-time")
        self._compression = group.sensor("compression", {"compression-rate-avg": Avg()})
        self._latency = group.spread("request-latency")
        self._throttle = group.spread("produce-throttle-time")
        self._records = group.sensor("records", None, group.meter("record-send"))
        self._per_request = group.sensor("per-request", {"records-per-request-avg": Avg()})
        self._record_size = group.sensor("record-size", {"record-size-avg": Avg()})
        self._retries = group.sensor("retries", None, group.meter("record-retry"))
        self._errors = group.sensor("errors", None, group.meter("record-error"))
        self._splits = group.sensor("splits", None, group.meter("batch-split"))
        self._exhausted = group.sensor("exhausted", None, group.meter("buffer-exhausted"))
        self._pool_wait = group.sensor("pool-wait", {"bufferpool-wait-ratio": Rate()})
        group.gauge("requests-in-flight", lambda: counters["requests_in_flight"])
        group.gauge("metadata-age", self._metadata_age)
        group.gauge("waiting-threads", lambda: float(pool.waiting))
        group.gauge("buffer-total-bytes", lambda: float(pool.total))
        group.gauge("buffer-available-bytes", lambda: float(pool.total - pool.in_use))
        group.gauge("bufferpool-wait-time-ns-total", lambda: pool.wait_seconds_total * _NS)
        for name in times.NAMES:
            group.gauge(f"{name}-time-ns-total", times.reader(name))
        client.add_part(self._drain)

    def _metadata_age(self) -> float:
        refreshed = self._network.metadata.last_success
        return _NAN if refreshed is None else self._client.registry.clock() - refreshed

    def _grown(self, counter: str) -> float:
        value = self._counters[counter]
        grown, self._seen[counter] = value - self._seen[counter], value
        return grown

    def _drain(self, seconds: dict[str, list[float]], throttled: dict[str, list[float]]) -> None:
        now, log = self._client.at, self._batches
        latencies = seconds.get("Produce", [])
        feed(self._latency, latencies, now, scale=_MS)
        if latencies:
            throttles = throttled.get("Produce", [])
            zeros = len(latencies) > len(throttles)
            least = 0.0 if zeros else min(throttles)
            self._throttle.update(
                len(latencies), sum(throttles) * _MS, least * _MS, max(throttles, default=0.0) * _MS, now
            )
        times, log.request_seconds = log.request_seconds, []
        if times:
            self._count("request_seconds", times)
        sent, log.sent = log.sent, []
        requests = self._grown("request_total")
        if sent:
            self._drain_sent(sent, requests, now)
        for events, sensor in ((log.retried, self._retries), (log.failed, self._errors)):
            feed(sensor, [records for _, records in events], now)
        for topic, records in log.retried:
            self._topic(topic).retries.update(1, records, records, records, now)
        for topic, records in log.failed:
            self._topic(topic).errors.update(1, records, records, records, now)
        log.retried, log.failed = [], []
        splits = self._grown("batch_split_total")
        self._splits.update(int(splits > 0), splits, splits, splits, now)
        exhausted, self._exhausted_calls = self._pool.exhausted - self._exhausted_calls, self._pool.exhausted
        self._exhausted.update(int(exhausted > 0), exhausted, exhausted, exhausted, now)
        waited, self._waited = self._pool.wait_seconds_total - self._waited, self._pool.wait_seconds_total
        self._pool_wait.update(int(waited > 0), waited, waited, waited, now)

    def _drain_sent(self, sent: list[tuple[str, int, int, int, float]], requests: float, now: float) -> None:
        topics, records, raws, sizes, waits = zip(*sent, strict=True)
        ratios = [size / raw if raw else 1.0 for size, raw in zip(sizes, raws, strict=True)]
        size, counters = sum(sizes), self._counters
        counters["batch_total"] += len(sent)
        counters["byte_total"] += size
        counters["record_byte_total"] += sum(raws)
        counters["compressed_byte_total"] += size
        self._count("queue_seconds", waits)
        feed(self._size, sizes, now)
        feed(self._queue, waits, now, scale=_MS)
        feed(self._compression, ratios, now)
        feed(self._records, records, now)
        total = sum(records)
        self._record_size.update(total, sum(raws), 0.0, max(raws), now)
        self._per_request.update(int(requests), total, 0.0, max(records), now)
        if topics.count(topics[0]) == len(topics):
            self._feed_topic(topics[0], sizes, records, ratios, now)
            return
        by_topic: dict[str, list[int]] = {}
        for number, topic in enumerate(topics):
            by_topic.setdefault(topic, []).append(number)
        for topic, numbers in by_topic.items():
            self._feed_topic(
                topic,
                [sizes[number] for number in numbers],
                [records[number] for number in numbers],
                [ratios[number] for number in numbers],
                now,
            )

    def _count(self, name: str, times: Sequence[float]) -> None:
        self._counters[f"{name}_total"] += sum(times)
        self._counters[f"{name}_max"] = max(self._counters[f"{name}_max"], max(times))

    def _feed_topic(
        self, topic: str, sizes: Sequence[float], records: Sequence[float], ratios: Sequence[float], now: float
    ) -> None:
        sensors = self._topic(topic)
        feed(sensors.bytes, sizes, now)
        feed(sensors.records, records, now)
        feed(sensors.compression, ratios, now)

    def _topic(self, topic: str) -> _TopicSensors:
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = _TopicSensors(self._client, topic)
        return found
