"""A producer's metrics: totals since the start, averages, and current values.

The counters, and values derived from them under Kafka's names, whose times are milliseconds. There are no rates: two
readings and a clock give any. Values are computed when they are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from triokafka.client.producer.accumulator import Accumulator
from triokafka.client.producer.counters import COUNTERS
from triokafka.network.network_client import NetworkClient

METRICS: Final[Mapping[str, str]] = {
    **COUNTERS,
    "batch_size_avg": "Bytes of a batch as it is sent, on average.",
    "compression_rate_avg": "Bytes after compression by bytes before: 1 without compression, the less the better.",
    "record_queue_time_avg": "Milliseconds that a batch waited from its beginning to its first request, on average.",
    "record_queue_time_max": "The longest such wait.",
    "request_latency_avg": "Milliseconds from handing over a Produce request to its end, on average.",
    "request_latency_max": "The longest such time.",
    "produce_throttle_time_avg": "Milliseconds that an answer asked to wait because of quotas, on average.",
    "produce_throttle_time_max": "The longest such wait.",
    "bufferpool_wait_time_total": "Milliseconds that senders waited for buffer memory.",
    "bufferpool_wait_time_max": "The longest such wait.",
    "buffer_total_bytes": "The option buffer_memory.",
    "buffer_available_bytes": "Bytes of it that are not lent to batches.",
    "waiting_threads": "Tasks that wait for buffer memory now (Kafka's name).",
    "batches_unacknowledged": "Batches that are neither acknowledged nor given up, being filled or sent.",
    "connection_count": "Connections that are ready.",
    "metadata_age": "Milliseconds since the metadata was refreshed; -1 before the first time.",
}
"""Every metric and its meaning."""


def take_metrics(
    accumulator: Accumulator, counters: Mapping[str, float], client: NetworkClient, now: float
) -> dict[str, float]:
    """Return the value of every metric. Averages of nothing are 0."""
    pool = accumulator.pool
    batches, ended = counters["batch_total"], counters["request_total"] - counters["requests_in_flight"]
    refreshed = client.metadata.last_success
    return {
        **{name: counters[name] for name in COUNTERS},
        "batch_size_avg": _average(counters["compressed_byte_total"], batches),
        "compression_rate_avg": _average(counters["compressed_byte_total"], counters["record_byte_total"]),
        "record_queue_time_avg": _average(counters["queue_seconds_total"] * 1000, batches),
        "record_queue_time_max": counters["queue_seconds_max"] * 1000,
        "request_latency_avg": _average(counters["request_seconds_total"] * 1000, ended),
        "request_latency_max": counters["request_seconds_max"] * 1000,
        "produce_throttle_time_avg": _average(counters["throttle_seconds_total"] * 1000, ended),
        "produce_throttle_time_max": counters["throttle_seconds_max"] * 1000,
        "bufferpool_wait_time_total": pool.wait_seconds_total * 1000,
        "bufferpool_wait_time_max": pool.wait_seconds_max * 1000,
        "buffer_total_bytes": pool.total,
        "buffer_available_bytes": pool.total - pool.in_use,
        "waiting_threads": pool.waiting,
        "batches_unacknowledged": len(accumulator.batches.unsettled),
        "connection_count": sum(status.connected for status in client.broker_statuses()),
        "metadata_age": (now - refreshed) * 1000 if refreshed is not None else -1,
    }


def _average(total: float, count: float) -> float:
    return total / count if count else 0.0
