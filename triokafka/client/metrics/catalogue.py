"""Kafka's client metrics that this package has: name, unit and meaning, by group.

``{}`` in a group stands for ``producer``, ``consumer`` or ``admin-client``. All have the tag ``client-id``. Rates and
averages cover the sliding window (``metrics_num_samples`` of ``metrics_sample_window_ms``); a total counts since the
start. An average or a maximum without values is NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from triokafka.named_tuple import NamedTuple


class Declared(NamedTuple):
    """The unit and the meaning of a metric."""

    unit: str
    meaning: str


Group = Mapping[str, Declared]


def _pair(name: str, unit: str, noun: str) -> dict[str, Declared]:
    return {
        f"{name}-rate": Declared(f"{unit}/s", f"{noun} per second."),
        f"{name}-total": Declared(unit, f"{noun} since the start."),
    }


def _spread(name: str, unit: str, noun: str) -> dict[str, Declared]:
    return {
        f"{name}-avg": Declared(unit, f"Average {noun}."),
        f"{name}-max": Declared(unit, f"Largest {noun}."),
    }


_TRAFFIC: Final[Group] = {
    **_pair("outgoing-byte", "bytes", "Bytes sent"),
    **_pair("request", "requests", "Requests sent"),
    **_spread("request-size", "bytes", "size of a request"),
    **_pair("incoming-byte", "bytes", "Bytes received"),
    **_pair("response", "responses", "Responses received"),
}

CONNECTIONS: Final[Group] = {
    "connection-count": Declared("connections", "Connections that are ready."),
    **_pair("connection-creation", "connections", "Connections that became ready"),
    **_pair("connection-close", "connections", "Connections that ended"),
    **_pair("successful-authentication", "connections", "Connections that authenticated and became ready"),
    **_pair("failed-authentication", "connections", "Connections whose authentication failed"),
    **_pair("network-io", "operations", "Requests sent and responses received"),
    **_TRAFFIC,
}
NODE: Final[Group] = {**_TRAFFIC, **_spread("request-latency", "ms", "time from a request to its response")}

PRODUCER: Final[Group] = {
    **_spread("batch-size", "bytes", "size of a sent batch, after compression"),
    **_pair("batch-split", "batches", "Batches that a broker found too large and the producer split"),
    "compression-rate-avg": Declared("ratio", "Average of bytes after compression divided by bytes before."),
    **_spread("record-queue-time", "ms", "time from the creation of a batch to its first request"),
    **_spread("request-latency", "ms", "time from a Produce request to its response"),
    **_spread("produce-throttle-time", "ms", "throttle time of a response to Produce because of quotas"),
    **_pair("record-send", "records", "Records sent"),
    **_pair("record-retry", "records", "Records in retried batches"),
    **_pair("record-error", "records", "Records that failed"),
    "records-per-request-avg": Declared("records", "Average number of records in a Produce request."),
    "record-size-avg": Declared("bytes", "Average size of a record before compression, with its part of the batch."),
    "requests-in-flight": Declared("requests", "Produce requests that have not ended yet."),
    "metadata-age": Declared("s", "Time since the last refresh of the metadata; NaN before the first."),
    "waiting-threads": Declared("tasks", "Tasks that are waiting for buffer memory."),
    "buffer-total-bytes": Declared("bytes", "The option buffer_memory."),
    "buffer-available-bytes": Declared("bytes", "Bytes of buffer_memory that no batch uses."),
    **_pair("buffer-exhausted", "records", "Calls that found no buffer memory within max_block_ms"),
    "bufferpool-wait-ratio": Declared("ratio", "Share of time in which callers waited for buffer memory."),
    "bufferpool-wait-time-ns-total": Declared("ns", "Time in which callers waited for buffer memory."),
    "flush-time-ns-total": Declared("ns", "Time in flush()."),
    "txn-init-time-ns-total": Declared("ns", "Time in init_transactions()."),
    "txn-begin-time-ns-total": Declared("ns", "Time in beginning transactions."),
    "txn-send-offsets-time-ns-total": Declared("ns", "Time in sending offsets to transactions."),
    "txn-commit-time-ns-total": Declared("ns", "Time in committing transactions."),
    "txn-abort-time-ns-total": Declared("ns", "Time in aborting transactions."),
}
PRODUCER_TOPIC: Final[Group] = {
    **_pair("byte", "bytes", "Compressed bytes of batches sent for the topic"),
    "compression-rate": Declared("ratio", "Average of bytes after compression divided by bytes before."),
    **_pair("record-send", "records", "Records sent to the topic"),
    **_pair("record-retry", "records", "Records of the topic in retried batches"),
    **_pair("record-error", "records", "Records of the topic that failed"),
}

FETCH_MANAGER: Final[Group] = {
    **_spread("fetch-size", "bytes", "number of bytes of records in a fetch"),
    **_pair("bytes-consumed", "bytes", "Bytes of records fetched"),
    "records-per-request-avg": Declared("records", "Average number of records in a fetch that returned records."),
    **_pair("records-consumed", "records", "Records returned to the application"),
    **_spread("fetch-latency", "ms", "time from a Fetch request to its response"),
    **_pair("fetch", "requests", "Fetch requests"),
    "records-lag-max": Declared("records", "Largest lag of any partition in the window."),
    "records-lead-min": Declared("records", "Smallest lead of any partition in the window."),
    **_spread("fetch-throttle-time", "ms", "throttle time of a response to Fetch because of quotas"),
}
FETCH_MANAGER_TOPIC: Final[Group] = {
    **_spread("fetch-size", "bytes", "number of bytes of the topic's records in a fetch"),
    **_pair("bytes-consumed", "bytes", "Bytes of the topic's records fetched"),
    "records-per-request-avg": Declared("records", "Average number of the topic's records in a fetch that has some."),
    **_pair("records-consumed", "records", "Records of the topic returned to the application"),
}
FETCH_MANAGER_PARTITION: Final[Group] = {
    "records-lag": Declared("records", "Offsets from the position to the end of the partition."),
    **_spread("records-lag", "records", "lag"),
    "records-lead": Declared("records", "Offsets from the start of the partition to the position."),
    "records-lead-avg": Declared("records", "Average lead."),
    "records-lead-min": Declared("records", "Smallest lead: at 0, retention deletes unread records."),
    "preferred-read-replica": Declared("broker", "The follower to fetch from; -1 for the leader."),
}
COORDINATOR: Final[Group] = {
    "assigned-partitions": Declared("partitions", "Partitions assigned to this consumer."),
    **_spread("commit-latency", "ms", "time from an OffsetCommit request to its response"),
    **_pair("commit", "calls", "OffsetCommit responses"),
    "heartbeat-response-time-max": Declared("ms", "Longest time from a heartbeat to its response."),
    **_pair("heartbeat", "heartbeats", "Heartbeats"),
    "last-heartbeat-seconds-ago": Declared("s", "Time since the last response to a heartbeat; -1 before the first."),
    **_spread("join-time", "ms", "time of a JoinGroup request"),
    **_pair("join", "joins", "JoinGroup responses"),
    **_spread("sync-time", "ms", "time of a SyncGroup request"),
    **_pair("sync", "syncs", "SyncGroup responses"),
    **_spread("rebalance-latency", "ms", "time of a rebalance"),
    "rebalance-latency-total": Declared("ms", "Time in rebalances since the start."),
    "rebalance-rate-per-hour": Declared("rebalances/hour", "Rebalances per hour."),
    "rebalance-total": Declared("rebalances", "Rebalances since the start."),
    "last-rebalance-seconds-ago": Declared("s", "Time since the last rebalance; -1 before the first."),
}
CONSUMER: Final[Group] = {
    "last-poll-seconds-ago": Declared("s", "Time since the last call for records; -1 without a group."),
    "commit-sync-time-ns-total": Declared("ns", "Time in commit()."),
    "committed-time-ns-total": Declared("ns", "Time in committed()."),
}
COUNT: Final[Group] = {"count": Declared("metrics", "Number of registered metrics.")}

GROUPS: Final[Mapping[str, tuple[tuple[str, ...], Group]]] = {
    "kafka-metrics-count": ((), COUNT),
    "producer-metrics": ((), {**CONNECTIONS, **PRODUCER}),
    "producer-node-metrics": (("node-id",), NODE),
    "producer-topic-metrics": (("topic",), PRODUCER_TOPIC),
    "consumer-metrics": ((), {**CONNECTIONS, **CONSUMER}),
    "consumer-node-metrics": (("node-id",), NODE),
    "consumer-fetch-manager-metrics": ((), FETCH_MANAGER),
    "consumer-fetch-manager-metrics (topic)": (("topic",), FETCH_MANAGER_TOPIC),
    "consumer-fetch-manager-metrics (partition)": (("topic", "partition"), FETCH_MANAGER_PARTITION),
    "consumer-coordinator-metrics": ((), COORDINATOR),
    "admin-client-metrics": ((), CONNECTIONS),
    "admin-client-node-metrics": (("node-id",), NODE),
}
"""Every group, with the tags beside ``client-id`` and its metrics."""
