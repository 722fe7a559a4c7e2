"""Transactions of triokafka, other Python clients and Kafka's Java client, on our broker and on Apache Kafka.

Three measurements, with values of 100 bytes, topics of one partition, and the clients' defaults except 0 ms of linger
where a client has that option (a commit flushes anyway):

- ``commit``: transactions of 1, 100 and 10,000 records, one after the other; each ends when the commit returns.
- ``flush``: as many records from an idempotent producer without transactions; a round ends when all are acknowledged.
- ``copy``: a client copies a topic, with its offsets in the transaction. A probe writes a record to the source and
  waits for it at the end of the target, reading only committed records; then it writes the next.

Each measurement runs in its own process. Brokers and clients take turns, round after round, each round in another
order, and the medians are compared. Apache Kafka and the Java client need the jars that ``make interop`` fetches.

``python -m benchmarks.transactions --quick``, or ``--rounds 3 --client triokafka --client aiokafka``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import trio

import triokafka
from benchmarks import plots
from benchmarks.broker_kinds import KINDS, Instance
from benchmarks.report import save
from benchmarks.transaction_clients import RATES, CopyJob, RateJob
from triokafka.cli.load.brokers import MeasurementError

JAVA: Final = "Java"
CLIENTS: Final = (*RATES, JAVA)
BROKERS: Final = ("triokafka", "Apache Kafka")
_SETTINGS: Final = {"group.initial.rebalance.delay.ms": "0"}
_TIMEOUT: Final = 120
_JAVA_ATTEMPTS: Final = 3
_WARM_UP_SECONDS: Final = 30.0
_WARM_UP_COPIES: Final = 1_500


class Plan(NamedTuple):
    """The measurements and their sizes."""

    rounds: int = 3
    sizes: tuple[int, ...] = (1, 100, 10_000)
    clients: tuple[str, ...] = CLIENTS
    seconds: float = 3.0
    warm_up: int = 30
    copies: int = 300


QUICK: Final = Plan(rounds=1, sizes=(1, 100), seconds=1.0, copies=100)
"""A plan of about three minutes."""


class Row(NamedTuple):
    """The medians of one client on one broker, in milliseconds: a transaction, and a flush without one."""

    broker: str
    client: str
    records: int
    transactions_per_second: float
    commit_ms: float
    flush_ms: float


class CopyRow(NamedTuple):
    """Milliseconds from the write of a record to its committed copy."""

    broker: str
    client: str
    p50_ms: float
    p99_ms: float


class Findings(NamedTuple):
    """The results of a run."""

    rows: list[Row]
    copies: list[CopyRow]
    failures: list[str]


def run(plan: Plan | None = None) -> Findings:
    """Measure. Without a plan, measure everything."""
    plan = plan or Plan()
    failures: list[str] = []
    rates: dict[tuple[str, str, int, bool], list[float]] = {}
    copies: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with ExitStack() as stack:
        brokers = _brokers(stack, failures)
        clients = [client for client in plan.clients if client != JAVA or "Apache Kafka" in brokers]
        # The JVM of Apache Kafka compiles; until then its commits and its part of a copy take twice the time.
        for bootstrap in brokers.values():
            _rate("triokafka", bootstrap, 1, plan._replace(seconds=_WARM_UP_SECONDS), commits=True)
            _copy("triokafka", bootstrap, _WARM_UP_COPIES)
        for number in range(plan.rounds):
            print(f"  round {number + 1} of {plan.rounds}", flush=True)
            start = number * len(clients) // plan.rounds  # no client is always first, when Apache Kafka is slowest
            for client in (*clients[start:], *clients[:start]):
                for broker, bootstrap in brokers.items():
                    try:
                        for records in plan.sizes:
                            for commits in (True, False):
                                found = _rate(client, bootstrap, records, plan, commits=commits)
                                rates.setdefault((broker, client, records, commits), []).append(found)
                        copies.setdefault((broker, client), []).append(_copy(client, bootstrap, plan.copies))
                    except (MeasurementError, subprocess.SubprocessError, AssertionError) as error:
                        failures.append(f"{client} on {broker}: {error}")
    medians = {key: statistics.median(found) for key, found in rates.items()}
    rows = [
        Row(broker, client, records, rate, 1000 / rate, 1000 / medians[broker, client, records, False])
        for (broker, client, records, commits), rate in medians.items()
        if commits and (broker, client, records, False) in medians
    ]
    copied = [
        CopyRow(broker, client, *(statistics.median(column) for column in zip(*found, strict=True)))
        for (broker, client), found in copies.items()
    ]
    return Findings(rows, copied, failures)


def _brokers(stack: ExitStack, failures: list[str]) -> dict[str, str]:
    """Start the brokers for the length of the stack; return their addresses."""
    addresses = {}
    for name in BROKERS:
        missing = KINDS[name].missing()
        if missing:
            failures.append(f"{name} is not measured: {missing}")
            continue
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        instance = Instance(KINDS[name], Path(directory), _SETTINGS)
        stack.callback(instance.kill)
        addresses[name] = instance.start().broker.bootstrap
    return addresses


def _rate(client: str, bootstrap: str, records: int, plan: Plan, *, commits: bool) -> float:
    """Run one client in its own process. Return transactions or flushes per second."""
    job = RateJob(client, bootstrap, f"bench-{uuid.uuid4().hex[:8]}", records, commits, plan.warm_up, plan.seconds)
    if records > 1_000:
        job = job._replace(warm_up=min(3, plan.warm_up))
    trio.run(_create, bootstrap, job.topic)
    if client == JAVA:
        from tests.interop import jvm

        # The Java client's rate grows for seconds until its code is compiled.
        warm_up = 20 * job.warm_up
        kind = "commit" if commits else "flush"
        arguments = [kind, bootstrap, job.topic, str(records), str(warm_up), str(job.seconds)]
        # Kafka's client 4.3 now and then fails with InvalidTxnStateException, on Apache Kafka as on our broker.
        for _ in range(_JAVA_ATTEMPTS - 1):
            with suppress(AssertionError):
                return float(jvm.run_java("TransactionRate", *arguments, timeout=_TIMEOUT))
        return float(jvm.run_java("TransactionRate", *arguments, timeout=_TIMEOUT))
    done = subprocess.run(_command("rate", job), capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise MeasurementError(lines[-1] if lines else f"exit status {done.returncode}")
    return float(json.loads(done.stdout))


def _command(work: str, job: RateJob | CopyJob) -> list[str]:
    return [sys.executable, "-m", "benchmarks.transaction_clients", work, json.dumps(job._asdict())]


def _copy(client: str, bootstrap: str, count: int) -> tuple[float, float]:
    """Measure the latency of copies by one client. Return the median and the 99th percentile in milliseconds."""
    name = uuid.uuid4().hex[:8]
    job = CopyJob(client, bootstrap, f"source-{name}", f"target-{name}", f"copiers-{name}")
    for topic in (job.source, job.target):
        trio.run(_create, bootstrap, topic)
    if client == JAVA:
        from tests.interop import jvm

        java = ["java", *jvm.QUICK_START, "-cp", jvm.compiled(), "TransactionalCopier"]
        command = [*java, bootstrap, job.source, job.target, job.group, uuid.uuid4().hex, "500"]
    else:
        command = _command("copy", job)
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        times = sorted(trio.run(_probe, job, count))
    except trio.TooSlowError:
        raise MeasurementError(f"no copy within {_TIMEOUT} s") from None
    finally:
        process.kill()
        process.wait()
    return statistics.median(times), times[int(len(times) * 0.99)]


async def _create(bootstrap: str, topic: str) -> None:
    async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([triokafka.NewTopic(topic, 1, 1)])


async def _probe(job: CopyJob, count: int) -> list[float]:
    """Return the milliseconds of ``count`` copies, after some for warm-up."""
    options: dict[str, Any] = {"bootstrap_servers": job.bootstrap}
    warm_up = max(20, count // 3)
    times = []
    with trio.fail_after(_TIMEOUT):
        async with (
            triokafka.Producer(**options, linger_ms=0) as producer,
            triokafka.Consumer(**options, isolation_level="read_committed") as consumer,
        ):
            target = triokafka.TopicPartition(job.target, 0)
            consumer.assign([target])
            consumer.seek_to_beginning(target)
            for _ in range(warm_up + count):
                began = time.perf_counter()
                await producer.send(job.source, b"x" * 100)
                while not await consumer.poll(timeout_ms=1000):
                    pass
                times.append((time.perf_counter() - began) * 1000)
    return times[warm_up:]


def show(found: Findings) -> None:
    """Print the tables."""
    print(f"  {'broker':14} {'client':20} {'records':>8} {'transactions/s':>15} {'commit ms':>10} {'flush ms':>9}")
    for row in sorted(found.rows, key=lambda row: (row.records, row.broker != BROKERS[0], row.commit_ms)):
        print(
            f"  {row.broker:14} {row.client:20} {row.records:8,} {row.transactions_per_second:15,.1f}"
            f" {row.commit_ms:10.2f} {row.flush_ms:9.2f}"
        )
    print(f"\n  {'broker':14} {'copied by':20} {'p50 ms':>8} {'p99 ms':>8}")
    for copied in sorted(found.copies, key=lambda row: (row.broker != BROKERS[0], row.p50_ms)):
        print(f"  {copied.broker:14} {copied.client:20} {copied.p50_ms:8.2f} {copied.p99_ms:8.2f}")
    for failure in found.failures:
        print(f"  {failure}")


def as_document(found: Findings) -> dict[str, Any]:
    """Return the findings for JSON."""
    return {
        "rows": [row._asdict() for row in found.rows],
        "copies": [row._asdict() for row in found.copies],
        "failures": found.failures,
    }


def draw(found: Findings) -> Any:
    """Plot the time of a transaction of one record, by client and broker."""
    rows = sorted((row for row in found.rows if row.records == 1), key=lambda row: row.commit_ms)
    return plots.bars(
        _claim(rows),
        "milliseconds for a transaction of one record (shorter is better)",
        lambda row: (f"{row.client} on {row.broker}", row.commit_ms),
        rows,
    )


def _claim(rows: Iterable[Row]) -> str:
    ms = {(row.broker, row.client): row.commit_ms for row in rows}
    ours = ms.get(("triokafka", "triokafka"))
    others = [value for (broker, client), value in ms.items() if broker == "triokafka" and "triokafka" not in client]
    if ours is None or not others:
        return "Transactions, by client and broker"
    return (
        f"A transaction with triokafka takes {plots.shown(ours)} ms; the fastest other client needs {min(others):.2f}"
    )


def plan_of(arguments: Sequence[str] | None = None) -> Plan:
    """Return the plan that the command line requests."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transactions", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="for each measurement of a rate")
    parser.add_argument("--client", action="append", choices=CLIENTS, help="may be given more than once")
    given = parser.parse_args(arguments)
    plan = QUICK if given.quick else Plan()
    chosen = {"rounds": given.rounds, "seconds": given.seconds, "clients": given.client and tuple(given.client)}
    return plan._replace(**{name: value for name, value in chosen.items() if value is not None})


def main() -> int:
    """Measure, print, and write JSON and a picture. Return 1 if a measurement failed."""
    found = run(plan_of())
    show(found)
    save("transactions", as_document(found), draw(found))
    return 1 if found.failures else 0


if __name__ == "__main__":
    sys.exit(main())
