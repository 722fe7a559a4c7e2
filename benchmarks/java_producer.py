"""Producing: Kafka's Java client (``ProducerPerformance``) and our ``send``.

Both send 100-byte values to the sink with acks=all, linger 5 ms, batches of 128 KiB and no idempotence, and take turns.
The records of the warm-up, during which the JVM compiles, do not count. Needs the jars that ``make interop`` fetches.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
from typing import Final, NamedTuple

from benchmarks.clients.brokers import sink_broker
from benchmarks.clients.job import Job
from benchmarks.clients.process import measure
from benchmarks.cluster_nodes import FULL_JAVA, KAFKA_JARS
from triokafka.cli.load.brokers import MeasurementError

OURS: Final = "triokafka send"
JAVA: Final = "Java ProducerPerformance"
_SETTINGS: Final = ("acks=all", "linger.ms=5", "batch.size=131072", "enable.idempotence=false")
_RESULT: Final = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec .* 99th", re.MULTILINE)
_TIMEOUT: Final = 120


class Row(NamedTuple):
    """The median of one client."""

    client: str
    records_per_second: float


def run(records: int = 2_000_000, warm_up: int = 1_000_000, rounds: int = 3) -> list[Row]:
    """Measure both in turn.

    Raises:
        MeasurementError: the jars are missing, or a client failed.
    """
    if not any(KAFKA_JARS.glob("kafka-tools-*.jar")):
        raise MeasurementError("Kafka's jars are not there: `make interop` fetches them")
    rates: dict[str, list[float]] = {OURS: [], JAVA: []}
    with sink_broker() as broker:
        for number in range(rounds):
            job = Job(broker.bootstrap, f"ours-{number}", records // 2, 100, "none")
            rates[OURS].append(measure("throughput", OURS, job).records_per_second)
            rates[JAVA].append(_java(broker.bootstrap, f"java-{number}", records, warm_up))
    return [Row(client, statistics.median(found)) for client, found in rates.items()]


def _java(bootstrap: str, topic: str, records: int, warm_up: int) -> float:
    command = ["java", *FULL_JAVA, "-cp", f"{KAFKA_JARS}/*", "org.apache.kafka.tools.ProducerPerformance"]
    command += ["--topic", topic, "--num-records", str(records + warm_up), "--warmup-records", str(warm_up)]
    command += ["--record-size", "100", "--throughput", "-1", "--command-property"]
    command += [f"bootstrap.servers={bootstrap}", *_SETTINGS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    results = _RESULT.findall(done.stdout)
    if done.returncode != 0 or not results:
        raise MeasurementError(f"{JAVA}: {done.stdout[-300:]} {done.stderr[-300:]}")
    return float(results[-1][1])


def show(rows: list[Row]) -> None:
    """Print the table."""
    for row in rows:
        print(f"{row.client:28} {row.records_per_second:12,.0f} records/s")


if __name__ == "__main__":
    show(run())
    sys.exit(0)
