"""Producing: triokafka, kafka-python, aiokafka and confluent-kafka against three brokers.

Each measurement runs in its own process, so that no client's threads disturb another's. The clients take turns, round
after round, against one broker process, and the medians are compared, so that a slow moment of the machine affects all.
All have the same settings: acks=all, linger 5 ms, batches of 128 KiB, one partition, no idempotence unless a row says
so, and one acknowledged record before the clock starts. The benchmark compares the records that the broker received
with those that were sent, and the sink acknowledges only batches that a broker would: a client that loses or garbles a
record has no result.

Latency is measured on a fixed schedule of 5,000 records a second with linger 0, from the scheduled time of a record to
the client's report of its acknowledgement. Memory is the peak while the broker does not answer under load.

``python -m benchmarks.produce --quick``, or ``--broker sink --size 100 --compression none --client 'triokafka send'``.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

from benchmarks.brokers import BROKERS
from benchmarks.clients.brokers import Broker, sink_broker
from benchmarks.clients.catalogue import PRODUCERS
from benchmarks.clients.comparison import turns
from benchmarks.clients.job import Job, Latency, Stall, Throughput
from benchmarks.clients.process import SENDING, finish, measure, start
from benchmarks.processes import cpu_seconds
from benchmarks.produce_picture import draw
from benchmarks.produce_plan import (
    COMPRESSIONS,
    LATENCY_CLIENTS,
    LATENCY_RATE,
    MEMORY_CLIENTS,
    MEMORY_LIMIT,
    QUICK,
    SIZES,
    Measured,
    Plan,
    Scenario,
    everything,
    verdicts,
)
from benchmarks.produce_rows import Findings, LatencyRow, MemoryRow, Row
from benchmarks.report import RESULTS, save
from triokafka.cli.load.brokers import MeasurementError

__all__ = ["as_document", "draw", "main", "plan_of", "run", "show"]

_BEFORE_STALL: Final = 1.0
_AFTER_STALL: Final = 1.0
_CHECKED_RECORDS: Final = 20_000


class Run:
    """One run of the benchmark; collects results and failures."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.failures: list[str] = []
        self._broken: set[str] = set()
        self._topics = 0

    def findings(self) -> Findings:
        """Measure everything in the plan."""
        self.check_contents()
        rows = [row for scenario in self.plan.scenarios for row in self.throughput(scenario)]
        brokers = list(dict.fromkeys(scenario.broker for scenario in self.plan.scenarios))
        latency = [row for broker in brokers for row in self.latency(broker)] if self.plan.latency_seconds else []
        memory = self.memory() if self.plan.stall_seconds else []
        found = {
            (Scenario(row.broker, row.size, row.compression), row.client): Measured(
                row.records_per_second, row.cpu_seconds_per_million
            )
            for row in rows
        }
        return Findings(rows, latency, memory, verdicts(found), self.failures)

    def check_contents(self) -> None:
        """Check, before any clock runs, that every value of every client arrives in order and unchanged.

        A client that fails the check is not measured.
        """
        expected = 0
        with sink_broker(check_everything=True) as broker:
            for client in self.plan.clients:
                _say(f"what {client} sends")
                job = self._job(broker, Scenario("sink", SIZES[0], "none"), _CHECKED_RECORDS)
                expected = expected or _crc_of(job)
                try:
                    measure("throughput", client, job)
                    seen = broker.seen(job.topic)
                    if (seen["records"], seen["values_crc"], seen["refused"]) != (job.records + 1, expected, 0):
                        raise MeasurementError(f"{client}: what arrived is not what was sent: {seen}")
                except MeasurementError as error:
                    self.failures.append(f"{error} (not measured, therefore)")
                    self._broken.add(client)

    def throughput(self, scenario: Scenario) -> list[Row]:
        """Measure all clients, round after round, against one broker process."""
        clients = self._sound(self.plan.clients_in(scenario))
        measured: dict[str, list[tuple[Throughput, float]]] = {client: [] for client in clients}
        with BROKERS[scenario.broker]() as broker:
            for round_number in range(self.plan.rounds_against(scenario.broker)):
                for client in turns(clients, round_number):
                    _say(f"{scenario.label}, round {round_number + 1}: {client}")
                    job = self._job(broker, scenario, self.plan.records_for(client, scenario))
                    before = cpu_seconds(broker.pid)
                    result = self._measure("throughput", client, broker, job)
                    if result is not None:
                        broker_cpu = (cpu_seconds(broker.pid) - before) / job.records * 1e6
                        measured[client].append((result, broker_cpu))
        rows = []
        for client, results in measured.items():
            if results:
                of_client = _medians(result for result, _ in results)
                of_broker = statistics.median(cpu for _, cpu in results)
                speed, megabytes, cpu, peak = of_client[1:]
                rows.append(Row(*scenario, client, speed, megabytes, cpu, peak, of_broker, len(results)))
        return rows

    def latency(self, broker_name: str) -> list[LatencyRow]:
        """Measure the clients that have one call per record, at the fixed rate."""
        scenario = Scenario(broker_name, SIZES[0], "none")
        clients = self._sound(LATENCY_CLIENTS)
        measured: dict[str, list[Latency]] = {client: [] for client in clients}
        with BROKERS[broker_name]() as broker:
            for round_number in range(self.plan.rounds_against(broker_name)):
                for client in turns(clients, round_number):
                    _say(f"latency, {broker_name}, round {round_number + 1}: {client}")
                    job = self._job(broker, scenario, int(LATENCY_RATE * self.plan.latency_seconds))
                    result = self._measure("latency", client, broker, job._replace(linger_ms=0, rate=LATENCY_RATE))
                    if result is not None:
                        measured[client].append(result)
        return [
            LatencyRow(broker_name, client, *_medians(results)[1:]) for client, results in measured.items() if results
        ]

    def memory(self) -> list[MemoryRow]:
        """Measure each client at full load, while the sink stops answering for some seconds and then resumes."""
        rows = []
        for client in self._sound(MEMORY_CLIENTS):
            with sink_broker() as broker:
                _say(f"memory while the broker does not answer: {client}")
                job = self._job(broker, Scenario("sink", SIZES[0], "none"), 0)
                result = self._stall(client, broker, job)
            if result is not None:
                rows.append(MemoryRow(client, result.before_mib, result.peak_mib))
        return rows

    def _stall(self, client: str, broker: Broker, job: Job) -> Stall | None:
        seconds = _BEFORE_STALL + self.plan.stall_seconds + _AFTER_STALL
        process = start("stall", client, job._replace(seconds=seconds, buffer_bytes=MEMORY_LIMIT))
        assert process.stdout is not None
        try:
            if process.stdout.readline().strip() == SENDING:
                time.sleep(_BEFORE_STALL)
                _pause(broker.pid, self.plan.stall_seconds)
            result = finish("stall", client, process)
            self._compare(client, broker, job, result.sent)
        except MeasurementError as error:
            self.failures.append(f"memory: {error}")
            return None
        assert isinstance(result, Stall)
        return result

    def _sound(self, clients: Iterable[str]) -> list[str]:
        return [client for client in clients if client in self.plan.clients and client not in self._broken]

    def _measure(self, kind: str, client: str, broker: Broker, job: Job) -> Any:
        try:
            result = measure(kind, client, job)
            self._compare(client, broker, job, result.sent)
        except MeasurementError as error:
            self.failures.append(f"{kind}, {job.size} B, {job.compression}: {error}")
            return None
        broker.forget(job.topic)
        return result

    @staticmethod
    def _compare(client: str, broker: Broker, job: Job, sent: int) -> None:
        received = broker.received(job.topic)
        if received != sent:
            raise MeasurementError(f"{client}: sent {sent} records, but the broker has {received}")
        broker.check(job.topic, job.compression)

    def _job(self, broker: Broker, scenario: Scenario, records: int) -> Job:
        self._topics += 1
        topic = f"bench-{os.getpid()}-{self._topics}"
        return Job(broker.bootstrap, topic, records, scenario.size, scenario.compression)


def _crc_of(job: Job) -> int:
    """Return the checksum of all values in order, the warm-up record first."""
    from crc32c import crc32c

    data = job.values()
    return crc32c(b"".join([data[0], *(data[i % len(data)] for i in range(job.records))]))


def _pause(pid: int, seconds: float) -> None:
    """Stop the process for some seconds: it neither reads nor answers, and its connections stay open."""
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)


def _medians(results: Iterable[Sequence[float]]) -> list[float]:
    """Return the median of each figure."""
    return [statistics.median(column) for column in zip(*results, strict=True)]


def _say(what: str) -> None:
    if sys.stderr.isatty():
        print(f"  {what:90}", end="\r", file=sys.stderr, flush=True)


def run(plan: Plan | None = None) -> Findings:
    """Measure. Without a plan, measure everything."""
    found = Run(plan or Plan(scenarios=everything())).findings()
    _say("")
    return found


def show(found: Findings) -> None:
    """Print the tables, and each target with its measured value."""
    scenario: tuple[str, int, str] | None = None
    for row in found.rows:
        if row[:3] != scenario:
            scenario = row[:3]
            print(f"\n{row.broker}, {row.size} B, {row.compression} (medians of {row.rounds})")
            print(f"  {'client':30} {'records/s':>12} {'MB/s':>8} {'CPU s/M':>9} {'broker':>8} {'peak MiB':>9}")
        print(
            f"  {row.client:30} {row.records_per_second:12,.0f} {row.megabytes_per_second:8,.0f}"
            f" {row.cpu_seconds_per_million:9.3f} {row.broker_cpu_seconds_per_million:8.3f} {row.peak_mib:9.0f}"
        )
    if found.latency:
        print(f"\nLatency at {LATENCY_RATE:,} records a second, 100 B, linger 0: milliseconds from the intended time")
        columns = " ".join(f"{name:>8}" for name in ("p50", "p95", "p99", "p99.9", "worst"))
        print(f"  {'broker':18} {'client':22} {columns} {'CPU s/M':>9}")
        for late in found.latency:
            figures = " ".join(f"{value:8.3f}" for value in late[2:7])
            print(f"  {late.broker:18} {late.client:22} {figures} {late.cpu_seconds_per_million:9.1f}")
    if found.memory:
        limit = MEMORY_LIMIT >> 20
        print(f"\nPeak MiB while the broker does not answer under full load (buffers of {limit} MiB where settable)")
        for stalled in found.memory:
            print(f"  {stalled.client:22} before {stalled.before_mib:6.0f}, then {stalled.peak_mib:6.0f}")
    print("\nTargets, against the sink (speed: records/s; processor: CPU s/M)")
    for verdict in found.targets:
        print(
            f"  {'met    ' if verdict.met else 'NOT MET'} {verdict.aim}: speed {verdict.speed:.2f},"
            f" processor {verdict.processor:.2f}, aimed at {verdict.target:g}"
        )
    for line in _latency_verdict(found.latency):
        print(f"  {line}")
    for failure in found.failures:
        print(f"  FAILED  {failure}")


def _latency_verdict(rows: Sequence[LatencyRow]) -> list[str]:
    p99 = {row.client: row.p99_ms for row in rows if row.broker == "sink"}
    ours, theirs = p99.get("triokafka send"), p99.get("confluent produce")
    if ours is None or theirs is None:
        return []
    word = "met    " if ours <= theirs else "NOT MET"
    return [f"{word} p99 at {LATENCY_RATE:,}/s: {ours:.3f} ms, confluent {theirs:.3f} ms, aimed at no more"]


def as_document(found: Findings) -> dict[str, Any]:
    """Return the findings for JSON."""
    return {
        "rows": [row._asdict() for row in found.rows],
        "latency": [row._asdict() for row in found.latency],
        "memory": [row._asdict() for row in found.memory],
        "targets": [verdict._asdict() for verdict in found.targets],
        "failures": found.failures,
    }


def plan_of(arguments: Sequence[str] | None = None) -> Plan:
    """Return the plan that the command line requests."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.produce", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="less of everything: under two minutes")
    parser.add_argument("--broker", action="append", choices=list(BROKERS), help="may be given more than once")
    parser.add_argument("--size", action="append", type=int, help="bytes of a value; may be given more than once")
    parser.add_argument("--compression", action="append", choices=COMPRESSIONS)
    parser.add_argument("--client", action="append", choices=list(PRODUCERS))
    parser.add_argument("--records", type=int, help="for a client of middling speed; others get more or fewer")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--latency-seconds", type=float, help="length of a measurement of latency; 0 for none")
    parser.add_argument("--stall-seconds", type=float, help="how long the broker does not answer; 0 for no such test")
    given = parser.parse_args(arguments)
    plan = QUICK if given.quick else Plan(scenarios=everything())
    if given.broker or given.size or given.compression:
        brokers, sizes = given.broker or ["sink"], given.size or [SIZES[0]]
        plan = plan._replace(
            scenarios=tuple(
                Scenario(broker, size, compression)
                for broker in brokers
                for size in sizes
                for compression in given.compression or ["none"]
            )
        )
    if given.client:
        plan = plan._replace(clients=tuple(given.client))
    if given.records:
        plan = plan._replace(records=given.records)
    if given.rounds:
        plan = plan._replace(rounds={}, other_rounds=given.rounds)
    if given.latency_seconds is not None:
        plan = plan._replace(latency_seconds=given.latency_seconds)
    if given.stall_seconds is not None:
        plan = plan._replace(stall_seconds=given.stall_seconds)
    return plan


def main() -> int:
    """Print the tables and write JSON and a picture. Return 1 if a measurement failed."""
    found = run(plan_of())
    show(found)
    save("produce", as_document(found), draw(found))
    print(f"\nJSON and picture are in {RESULTS}")
    return 1 if found.failures else 0


if __name__ == "__main__":
    sys.exit(main())
