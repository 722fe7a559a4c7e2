"""A producer's metrics: totals since the start, averages, and current values.

The metrics are the counters, and values under Kafka's names that are derived from them, with times in milliseconds.
There are no rates: callers compute them from two readings. Values are computed when the caller reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from triokafka.client.producer.accumulator import Accumulator
from triokafka.client.producer.counters import COUNTERS
from triokafka.network.network_client import NetworkClient

METRICS: Final[Mapping[str, str]] = {
    **COUNTERS,
    "batch_size_avg": "Average size of a sent batch in bytes, after compression.",
    "compression_rate_avg": "Bytes after compression divided by bytes before; 1 without compression.",
    "record_queue_time_avg": "Average time from the creation of a batch to its first request, in milliseconds.",
    "record_queue_time_max": "Longest time from the creation of a batch to its first request, in milliseconds.",
    "request_latency_avg": "Average time from sending a Produce request to its end, in milliseconds.",
    "request_latency_max": "Longest time from sending a Produce request to its end, in milliseconds.",
    "produce_throttle_time_avg": "Average throttle time of an answer because of quotas, in milliseconds.",
    "produce_throttle_time_max": "Longest throttle time of an answer, in milliseconds.",
    "bufferpool_wait_time_total": "Time that senders waited for buffer memory, in milliseconds.",
    "bufferpool_wait_time_max": "Longest time that a sender waited for buffer memory, in milliseconds.",
    "buffer_total_bytes": "The option buffer_memory.",
    "buffer_available_bytes": "Bytes of buffer_memory that no batch uses.",
    "waiting_threads": "Tasks that are waiting for buffer memory (Kafka's name).",
    "batches_unacknowledged": "Batches that are being filled or sent, neither acknowledged nor failed.",
    "connection_count": "Connections that are ready.",
    "metadata_age": "Milliseconds since the last refresh of the metadata; -1 before the first.",
}
"""Every metric and its meaning."""


def take_metrics(
    accumulator: Accumulator, counters: Mapping[str, float], client: NetworkClient, now: float
) -> dict[str, float]:
    """Return the value of every metric. An average without values is 0."""
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
