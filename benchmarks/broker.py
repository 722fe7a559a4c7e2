"""The broker beside noida-db and, if its jars are present, Apache Kafka.

The load comes from librdkafka clients in their own process, the same for every broker. The brokers take turns, round
after round, and the medians are compared. Throughput is the rate of broker and clients together on this machine;
processor time is the broker's alone, for a gigabyte of values. Latency is measured for single records on a fixed
schedule, from the scheduled time of a record to its acknowledgement by all replicas. A start ends when the first
request is answered.

``python -m benchmarks.broker --quick``, or ``--broker triokafka --broker noida-db --size 1024 --only moving``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import trio

import triokafka
from benchmarks.broker_kinds import KINDS, Instance, Running
from benchmarks.broker_load import STRETCH, Load
from benchmarks.broker_load import run as run_load
from benchmarks.broker_tables import (
    LATENCY_RATE,
    Findings,
    InProcessRow,
    LatencyRow,
    MovingRow,
    PartitionRow,
    StartRow,
    draw,
    show,
    verdicts,
)
from benchmarks.clients.comparison import turns
from benchmarks.clients.job import Job, Latency
from benchmarks.clients.process import measure
from benchmarks.processes import cpu_seconds, resident_mib
from benchmarks.report import RESULTS, as_document, save
from triokafka.cli.load.brokers import MeasurementError

__all__ = ["Plan", "as_document", "draw", "main", "plan_of", "run", "show"]

PARTS: Final = ("moving", "latency", "starting", "partitions", "in-process")

_MILLION: Final = 1_000_000
_IDLE_SECONDS: Final = 2.0
_SETTLE_SECONDS: Final = 1.0
"""Seconds between the first answer and the reading of memory, so that deferred start-up work is included."""
_ADMIN_TIMEOUT_MS: Final = 300_000
_PARTITIONS_AT_ONCE: Final = 5_000  # Kafka creates at most 10,000 metadata records for one request


class Cell(NamedTuple):
    """One load."""

    size: int
    partitions: int
    connections: int


_CELLS: Final = tuple(Cell(s, p, c) for s in (100, 1024) for p in (1, 100) for c in (1, 50))


class Plan(NamedTuple):
    """The measurements and their sizes."""

    brokers: tuple[str, ...] = tuple(KINDS)
    cells: tuple[Cell, ...] = _CELLS
    megabytes: int = 200
    rounds: int = 3
    latency_seconds: float = 5.0
    starts: int = 3
    stored_records: int = _MILLION
    partitions: tuple[int, ...] = (10, 100, 1_000, 10_000)
    peers_partitions: int = 1_000
    """The limit of partitions for the other brokers: some need minutes for more."""
    in_process_starts: int = 50
    only: tuple[str, ...] = PARTS

    def records(self, cell: Cell) -> int:
        """Return the number of records for one measurement."""
        unit = STRETCH * cell.partitions * max(1, cell.connections // cell.partitions)
        return max(1, round(self.megabytes * _MILLION / cell.size / unit)) * unit


QUICK: Final = Plan(
    cells=(Cell(100, 1, 1), Cell(1024, 1, 1), Cell(1024, 100, 50)),
    megabytes=100,
    rounds=2,
    latency_seconds=2.0,
    starts=1,
    stored_records=100_000,
    partitions=(10, 1_000),
    in_process_starts=10,
)
"""A plan of about four minutes."""


class Run:
    """One run of the benchmark; collects failures."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        self._plan = plan
        self._directory = directory
        self._numbers = iter(range(sys.maxsize))
        self.failures: list[str] = []
        self._brokers = []
        for name in plan.brokers:
            why = KINDS[name].missing()
            if why:
                print(f"{name} is not measured: {why}", file=sys.stderr)
            else:
                self._brokers.append(name)

    # ---------------------------------------------------------------- throughput

    def moving(self) -> list[MovingRow]:
        """Produce and consume: each cell with all brokers in turn."""
        return [row for cell in self._plan.cells for row in self._move(cell)]

    def _move(self, cell: Cell) -> list[MovingRow]:
        measured: dict[str, list[tuple[float, ...]]] = {name: [] for name in self._brokers}
        for round_number in range(self._plan.rounds):
            for name in turns(self._brokers, round_number):
                label = f"{cell.size} B, {cell.partitions} partitions, {cell.connections} connections"
                self._warm_memory()
                with self._trying(f"{label}: {name}"), self._fresh(name) as running:
                    measured[name].append(self._move_once(running, cell))
        return [
            MovingRow(*cell, name, *map(statistics.median, zip(*found, strict=True)))
            for name, found in measured.items()
            if found
        ]

    def _warm_memory(self) -> None:
        """Use as much memory as a broker will, and free it.

        A virtual machine returns unused memory to its host, and getting it back costs more than anything else that is
        done with a record. Without this step only the first broker would pay for that.
        """
        path = self._directory / "memory"
        with path.open("wb") as file:
            for _ in range(3 * self._plan.megabytes):
                file.write(bytes(_MILLION))
        path.unlink()

    def _move_once(self, running: Running, cell: Cell) -> tuple[float, ...]:
        broker = running.broker
        topic = "load"
        create_topic(broker.bootstrap, topic, cell.partitions)
        load = Load(broker.bootstrap, topic, self._plan.records(cell), *cell)
        figures: list[float] = []
        for what in ("produce", "consume"):
            before = cpu_seconds(broker.pid)
            moved = run_load(what, load)
            spent = cpu_seconds(broker.pid) - before
            megabytes = load.records * cell.size / _MILLION
            figures += [moved.per_second, moved.per_second * cell.size / _MILLION, spent / megabytes * 1000]
            if what == "produce":
                stored = sum(broker.received(topic, number) for number in range(cell.partitions))
                if stored != moved.records + 1:  # the record that proved that the topic exists
                    raise MeasurementError(f"{moved.records + 1} records were acknowledged, but {stored} are there")
        return tuple(figures)

    # ---------------------------------------------------------------- latency

    def latency(self) -> list[LatencyRow]:
        """Send one record at a time, on schedule."""
        measured: dict[str, list[tuple[float, ...]]] = {name: [] for name in self._brokers}
        for round_number in range(self._plan.rounds):
            for name in turns(self._brokers, round_number):
                with self._trying(f"latency: {name}"), self._fresh(name) as running:
                    broker = running.broker
                    create_topic(broker.bootstrap, "load", 1)
                    records = int(LATENCY_RATE * self._plan.latency_seconds)
                    job = Job(broker.bootstrap, "load", records, 100, "none", linger_ms=0, rate=LATENCY_RATE)
                    before = cpu_seconds(broker.pid)
                    found: Latency = measure("latency", "confluent produce", job)
                    spent = (cpu_seconds(broker.pid) - before) / records * _MILLION
                    measured[name].append((found.p50_ms, found.p99_ms, found.p999_ms, spent))
        return [
            LatencyRow(name, *map(statistics.median, zip(*found, strict=True)))
            for name, found in measured.items()
            if found
        ]

    # ---------------------------------------------------------------- starting

    def starting(self) -> list[StartRow]:
        """Start with a new directory, which is created as well, with an empty one, and with one that contains
        records."""
        plan = self._plan
        measured: dict[str, list[tuple[float, ...]]] = {name: [] for name in self._brokers}
        for round_number in range(plan.starts):
            for name in turns(self._brokers, round_number):
                self._warm_memory()
                with self._trying(f"start: {name}"), self._instance(name) as instance:
                    measured[name].append(self._start_thrice(instance))
        return [
            StartRow(name, *_with_records([statistics.median(column) for column in zip(*found, strict=True)], plan))
            for name, found in measured.items()
            if found
        ]

    def _start_thrice(self, instance: Instance) -> tuple[float, ...]:
        running = instance.start()
        # Some brokers create their directory when they start, others need a separate program for that.
        new_seconds = instance.prepare_seconds + running.start_seconds
        if instance.kind.keeps_data:
            instance.stop()
            running = instance.start()
        time.sleep(_SETTLE_SECONDS)
        found = (new_seconds, running.start_seconds, resident_mib(running.broker.pid))
        bootstrap = running.broker.bootstrap
        create_topic(bootstrap, "load", 1)
        run_load("produce", Load(bootstrap, "load", self._plan.stored_records, 100, 1, 1))
        if not instance.kind.keeps_data:
            return (*found, float("nan"), resident_mib(running.broker.pid))
        instance.stop()
        running = instance.start()
        time.sleep(_SETTLE_SECONDS)
        if running.broker.received("load") < self._plan.stored_records:
            raise MeasurementError("records are missing after a restart")
        return (*found, running.start_seconds, resident_mib(running.broker.pid))

    # ---------------------------------------------------------------- partitions

    def partitions(self) -> list[PartitionRow]:
        """Measure one topic with growing numbers of partitions."""
        rows = []
        for name in self._brokers:
            if not KINDS[name].keeps_data:
                continue
            for count in self._plan.partitions:
                if count > self._plan.peers_partitions and not name.startswith("triokafka"):
                    continue
                with self._trying(f"{count} partitions: {name}"), self._instance(name) as instance:
                    rows.append(_hold_partitions(instance, count))
        return rows

    # ---------------------------------------------------------------- in process

    def in_process(self) -> list[InProcessRow]:
        """Start brokers inside this process, one after the other."""
        times = trio.run(_start_in_process, self._plan.in_process_starts)
        return [InProcessRow(times[0] * 1000, statistics.median(times) * 1000, max(times) * 1000)]

    # ---------------------------------------------------------------- what the parts share

    @contextmanager
    def _trying(self, what: str) -> Iterator[None]:
        if sys.stderr.isatty():
            print(f"  {what:90}", end="\r", file=sys.stderr, flush=True)
        try:
            yield
        except MeasurementError as error:
            self.failures.append(f"{what}: {error}")
        except triokafka.KafkaError as error:
            self.failures.append(f"{what}: {error!r}")

    @contextmanager
    def _instance(self, name: str) -> Iterator[Instance]:
        with tempfile.TemporaryDirectory(dir=self._directory, ignore_cleanup_errors=True) as directory:
            instance = Instance(KINDS[name], Path(directory))
            try:
                yield instance
            finally:
                instance.kill()

    @contextmanager
    def _fresh(self, name: str) -> Iterator[Running]:
        with self._instance(name) as instance:
            yield instance.start()


def _with_records(medians: list[float], plan: Plan) -> tuple[float, float, float, int, float, float]:
    new_seconds, empty_seconds, empty_mib, full_seconds, full_mib = medians
    return new_seconds, empty_seconds, empty_mib, plan.stored_records, full_seconds, full_mib


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """Create a topic, and wait until it is served."""

    async def create() -> None:
        options: dict[str, Any] = {"bootstrap_servers": bootstrap, "request_timeout_ms": _ADMIN_TIMEOUT_MS}
        async with triokafka.AdminClient(**options) as admin:
            made = min(partitions, _PARTITIONS_AT_ONCE)
            await admin.create_topics([triokafka.NewTopic(topic, made, 1)], timeout_ms=_ADMIN_TIMEOUT_MS)
            while made < partitions:
                made = min(partitions, made + _PARTITIONS_AT_ONCE)
                await admin.create_partitions({topic: made}, timeout_ms=_ADMIN_TIMEOUT_MS)
        async with triokafka.Producer(**options, max_block_ms=_ADMIN_TIMEOUT_MS) as producer:
            await producer.send(
                topic, b"", partition=partitions - 1
            )  # the topic is served once this record is acknowledged

    trio.run(create)


def _hold_partitions(instance: Instance, count: int) -> PartitionRow:
    running = instance.start()
    broker = running.broker
    before = resident_mib(broker.pid)
    began = time.perf_counter()
    create_topic(broker.bootstrap, "many", count)
    create_seconds = time.perf_counter() - began
    kib = (resident_mib(broker.pid) - before) * 1024 / count
    cpu = cpu_seconds(broker.pid)
    time.sleep(_IDLE_SECONDS)
    idle = (cpu_seconds(broker.pid) - cpu) / _IDLE_SECONDS * 100
    instance.stop()
    restarted = instance.start()
    return PartitionRow(instance.kind.name, count, create_seconds, kib, idle, restarted.start_seconds)


async def _start_in_process(times: int) -> list[float]:
    from triokafka.testing import running_broker

    async with running_broker():
        pass  # imports
    found = []
    for _ in range(times):
        began = time.perf_counter()
        async with running_broker():
            found.append(time.perf_counter() - began)
    return found


# -------------------------------------------------------------------- the command


def run(plan: Plan | None = None) -> Findings:
    """Measure. Without a plan, measure everything."""
    plan = plan or Plan()
    with tempfile.TemporaryDirectory(prefix="bench-broker-", ignore_cleanup_errors=True) as directory:
        measuring = Run(plan, Path(directory))
        parts: dict[str, Callable[[], list[Any]]] = {
            "moving": measuring.moving,
            "latency": measuring.latency,
            "starting": measuring.starting,
            "partitions": measuring.partitions,
            "in-process": measuring.in_process,
        }
        moving, latency, starting, partitions, in_process = (
            parts[name]() if name in plan.only else [] for name in PARTS
        )
        targets = verdicts(moving, starting, in_process)
        return Findings(moving, latency, starting, partitions, in_process, targets, measuring.failures)


def plan_of(arguments: Sequence[str] | None = None) -> Plan:
    """Return the plan that the command line requests."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.broker", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument("--only", action="append", choices=PARTS, help="may be given more than once")
    parser.add_argument("--broker", action="append", choices=list(KINDS), help="may be given more than once")
    parser.add_argument("--size", action="append", type=int, help="bytes of a value; may be given more than once")
    parser.add_argument("--count", action="append", type=int, help="of partitions; may be given more than once")
    parser.add_argument("--connections", action="append", type=int, help="may be given more than once")
    parser.add_argument("--megabytes", type=int, help="of one measurement of throughput")
    parser.add_argument("--rounds", type=int)
    asked = parser.parse_args(arguments)
    plan = QUICK if asked.quick else Plan()
    cells = plan.cells
    if asked.size or asked.count or asked.connections:
        cells = tuple(
            Cell(size, partitions, connections)
            for size in asked.size or (1024,)
            for partitions in asked.count or (1,)
            for connections in asked.connections or (1,)
        )
    return plan._replace(
        cells=cells,
        only=tuple(asked.only or plan.only),
        brokers=tuple(asked.broker or plan.brokers),
        megabytes=asked.megabytes or plan.megabytes,
        rounds=asked.rounds or plan.rounds,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write JSON and a picture. Return 1 if a measurement failed."""
    found = run(plan_of(arguments))
    show(found)
    save("broker", as_document(found), draw(found))
    print(f"\nJSON and picture are in {RESULTS}")
    return 1 if found.failures else 0


if __name__ == "__main__":
    sys.exit(main())
