"""Measures clients in turn, round after round, against one broker, and compares them with the first."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from benchmarks.clients.brokers import Broker
from benchmarks.clients.catalogue import PRODUCERS
from benchmarks.clients.job import Job, Latency, Throughput
from benchmarks.clients.process import measure
from triokafka.cli.load.brokers import MeasurementError

COMPARED: Final[dict[str, tuple[str, ...]]] = {
    "send": ("triokafka send", "confluent produce", "aiokafka send", "kafka-python send"),
    "bound": ("triokafka bound send", "confluent produce", "aiokafka send", "kafka-python send"),
    "send-many": ("triokafka send_many", "confluent produce_batch", "aiokafka send_batch", "kafka-python send"),
}
"""The API of each library that is closest to each way of sending."""

_LEAST_RECORDS: Final = 1_000


class Compared(NamedTuple):
    """The medians of one client, and how the first client compares with it."""

    client: str
    medians: Throughput | Latency
    times_speed: float
    """The first client's records per second over this client's; for latencies, this client's p99 over the first one's.
    """
    times_processor: float
    """This client's processor time over the first one's."""


def compare(
    clients: Sequence[str], job: Job, broker: Broker, *, rounds: int, say: Callable[[str], None]
) -> list[Compared]:
    """Measure each client ``rounds`` times: latency if the job has a rate, otherwise throughput.

    Raises:
        MeasurementError: a client failed, or the broker does not have the records that it sent.
    """
    kind = "latency" if job.rate else "throughput"
    measured: dict[str, list[Any]] = {client: [] for client in clients}
    for round_number in range(rounds):
        for client in turns(clients, round_number):
            say(f"round {round_number + 1} of {rounds}: {client}")
            records = job.records if job.rate else max(_LEAST_RECORDS, int(job.records * min(1.0, _share(client))))
            before = broker.received(job.topic, job.partition)
            result = measure(kind, client, job._replace(records=records))
            _check(client, broker, job, before, result.sent)
            measured[client].append(result)
    rows = {client: _medians(results) for client, results in measured.items()}
    first = rows[clients[0]]
    return [Compared(client, row, *_times(first, row)) for client, row in rows.items()]


def turns(clients: Sequence[str], round_number: int) -> list[str]:
    """Return the order of one round. Each round begins with another client, so that none always follows the same
    one."""
    first = round_number % max(1, len(clients))
    return [*clients[first:], *clients[:first]]


def _medians(results: Sequence[Any]) -> Any:
    return type(results[0])(*map(statistics.median, zip(*results, strict=True)))


def _share(client: str) -> float:
    return PRODUCERS[client].share


def _check(client: str, broker: Broker, job: Job, before: int, sent: int) -> None:
    received = broker.received(job.topic, job.partition) - before
    if received != sent and job.acks != "0":
        raise MeasurementError(
            f"{client} sent {sent} records, but the broker has {received} more than before; does another program"
            f" write to {job.topic!r}?"
        )
    broker.check(job.topic, job.compression)


def _times(first: Any, other: Any) -> tuple[float, float]:
    processor = other.cpu_seconds_per_million / first.cpu_seconds_per_million
    if isinstance(first, Latency):
        return other.p99_ms / first.p99_ms, processor
    return first.records_per_second / other.records_per_second, processor
