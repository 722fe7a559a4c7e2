"""The broker, side by side with noida-db and, where it is there, Apache Kafka.

The load comes from librdkafka clients in a process of their own, the same for every broker; the brokers take turns,
round after round, and medians are compared. Throughput is what broker and clients reach together on this machine;
processor time is the broker's alone, a gigabyte of values. Latency is that of single records on a fixed schedule, from
when a record was meant to be sent until it was acknowledged by all. A start ends when the first request is answered.

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
from benchmarks.report import RESULTS, save
from triokafka.cli.measuring.comparison import turns
from triokafka.cli.measuring.job import Job, Latency
from triokafka.cli.measuring.meter import cpu_seconds, resident_mib
from triokafka.cli.measuring.process import MeasurementError, measure

PARTS: Final = ("moving", "latency", "starting", "partitions", "in-process")

_LATENCY_RATE: Final = 1_000
_MILLION: Final = 1_000_000
_IDLE_SECONDS: Final = 2.0
_ADMIN_TIMEOUT_MS: Final = 300_000


class Cell(NamedTuple):
    """One load."""

    size: int
    partitions: int
    connections: int


_CELLS: Final = tuple(Cell(s, p, c) for s in (100, 1024) for p in (1, 100) for c in (1, 50))


class Plan(NamedTuple):
    """What to measure, and how long."""

    brokers: tuple[str, ...] = tuple(KINDS)
    cells: tuple[Cell, ...] = _CELLS
    megabytes: int = 200
    rounds: int = 3
    latency_seconds: float = 5.0
    starts: int = 3
    stored_records: int = _MILLION
    partitions: tuple[int, ...] = (10, 100, 1_000, 10_000)
    peers_partitions: int = 1_000
    """Other brokers are not asked for more partitions than that: some take minutes."""
    in_process_starts: int = 50
    only: tuple[str, ...] = PARTS

    def records(self, cell: Cell) -> int:
        """For one measurement."""
        unit = STRETCH * cell.partitions * max(1, cell.connections // cell.partitions)
        return max(1, round(self.megabytes * _MILLION / cell.size / unit)) * unit


QUICK: Final = Plan(
    cells=(Cell(100, 1, 1), Cell(1024, 1, 1), Cell(1024, 100, 50)),
    megabytes=50,
    rounds=1,
    latency_seconds=2.0,
    starts=1,
    stored_records=100_000,
    partitions=(10, 1_000),
    in_process_starts=10,
)
"""About three minutes."""


class MovingRow(NamedTuple):
    """Medians of one broker under one load."""

    size: int
    partitions: int
    connections: int
    broker: str
    produced_per_second: float
    produced_megabytes: float
    produce_cpu_per_gigabyte: float
    consumed_per_second: float
    consumed_megabytes: float
    consume_cpu_per_gigabyte: float


class LatencyRow(NamedTuple):
    """Milliseconds, one record a request, acks=all; and what the broker spent on a thousand of them."""

    broker: str
    p50_ms: float
    p99_ms: float
    p999_ms: float
    cpu_ms_per_thousand: float


class StartRow(NamedTuple):
    """Seconds and MiB of one broker: with nothing, and with records from before a clean stop."""

    broker: str
    empty_seconds: float
    empty_mib: float
    records: int
    full_seconds: float
    full_mib: float


class PartitionRow(NamedTuple):
    """What partitions cost: to make, to hold, to have while nothing happens, and to start with."""

    broker: str
    partitions: int
    create_seconds: float
    kib_per_partition: float
    idle_cpu_percent: float
    restart_seconds: float


class InProcessRow(NamedTuple):
    """`triokafka.testing.running_broker`, milliseconds until the block is entered, once everything is imported."""

    first_ms: float
    median_ms: float
    worst_ms: float


class Verdict(NamedTuple):
    """What was aimed at, and what was measured."""

    aim: str
    target: float
    found: float
    met: bool


class Findings(NamedTuple):
    """All of a run."""

    moving: list[MovingRow]
    latency: list[LatencyRow]
    starting: list[StartRow]
    partitions: list[PartitionRow]
    in_process: list[InProcessRow]
    targets: list[Verdict]
    failures: list[str]


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
        """Produce and consume, each cell with all brokers in turns."""
        return [row for cell in self._plan.cells for row in self._move(cell)]

    def _move(self, cell: Cell) -> list[MovingRow]:
        measured: dict[str, list[tuple[float, ...]]] = {name: [] for name in self._brokers}
        for round_number in range(self._plan.rounds):
            for name in turns(self._brokers, round_number):
                label = f"{cell.size} B, {cell.partitions} partitions, {cell.connections} connections"
                with self._trying(f"{label}: {name}"), self._fresh(name) as running:
                    measured[name].append(self._move_once(running, cell))
        return [
            MovingRow(*cell, name, *map(statistics.median, zip(*found, strict=True)))
            for name, found in measured.items()
            if found
        ]

    def _move_once(self, running: Running, cell: Cell) -> tuple[float, ...]:
        broker = running.broker
        topic = "load"
        _create_topic(broker.bootstrap, topic, cell.partitions)
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
                if stored != moved.records + 1:  # the one that showed that the topic is there
                    raise MeasurementError(f"{moved.records + 1} records were acknowledged, but {stored} are there")
        return tuple(figures)

    # ---------------------------------------------------------------- latency

    def latency(self) -> list[LatencyRow]:
        """One record at a time, on schedule."""
        measured: dict[str, list[tuple[float, ...]]] = {name: [] for name in self._brokers}
        for round_number in range(self._plan.rounds):
            for name in turns(self._brokers, round_number):
                with self._trying(f"latency: {name}"), self._fresh(name) as running:
                    broker = running.broker
                    _create_topic(broker.bootstrap, "load", 1)
                    records = int(_LATENCY_RATE * self._plan.latency_seconds)
                    job = Job(broker.bootstrap, "load", records, 100, "none", linger_ms=0, rate=_LATENCY_RATE)
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
        """With an empty directory, and again with records in it."""
        plan = self._plan
        measured: dict[str, list[tuple[float, ...]]] = {name: [] for name in self._brokers}
        for round_number in range(plan.starts):
            for name in turns(self._brokers, round_number):
                with self._trying(f"start: {name}"), self._instance(name) as instance:
                    measured[name].append(self._start_twice(instance))
        return [
            StartRow(name, *_with_records([statistics.median(column) for column in zip(*found, strict=True)], plan))
            for name, found in measured.items()
            if found
        ]

    def _start_twice(self, instance: Instance) -> tuple[float, ...]:
        running = instance.start()
        empty = (running.start_seconds, resident_mib(running.broker.pid))
        bootstrap = running.broker.bootstrap
        _create_topic(bootstrap, "load", 1)
        run_load("produce", Load(bootstrap, "load", self._plan.stored_records, 100, 1, 1))
        if not instance.kind.keeps_data:
            return (*empty, float("nan"), resident_mib(running.broker.pid))
        instance.stop()
        running = instance.start()
        if running.broker.received("load") < self._plan.stored_records:
            raise MeasurementError("records are missing after a restart")
        return (*empty, running.start_seconds, resident_mib(running.broker.pid))

    # ---------------------------------------------------------------- partitions

    def partitions(self) -> list[PartitionRow]:
        """One topic with ever more partitions."""
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
        """Brokers inside this process, one after the other."""
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


def _with_records(medians: list[float], plan: Plan) -> tuple[float, float, int, float, float]:
    empty_seconds, empty_mib, full_seconds, full_mib = medians
    return empty_seconds, empty_mib, plan.stored_records, full_seconds, full_mib


def _create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    async def create() -> None:
        options: dict[str, Any] = {"bootstrap_servers": bootstrap, "request_timeout_ms": _ADMIN_TIMEOUT_MS}
        async with triokafka.AdminClient(**options) as admin:
            await admin.create_topics([triokafka.NewTopic(topic, partitions, 1)], timeout_ms=_ADMIN_TIMEOUT_MS)
        async with triokafka.Producer(**options, max_block_ms=_ADMIN_TIMEOUT_MS) as producer:
            await producer.send(topic, b"", partition=partitions - 1)  # it is served once this is acknowledged

    trio.run(create)


def _hold_partitions(instance: Instance, count: int) -> PartitionRow:
    running = instance.start()
    broker = running.broker
    before = resident_mib(broker.pid)
    began = time.perf_counter()
    _create_topic(broker.bootstrap, "many", count)
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


# -------------------------------------------------------------------- targets


def verdicts(
    moving: Sequence[MovingRow], starting: Sequence[StartRow], in_process: Sequence[InProcessRow]
) -> list[Verdict]:
    """What is aimed at, as far as both sides were measured."""
    found = []
    for cell in dict.fromkeys(row[:3] for row in moving if row.size == 1024):
        rows = {row.broker: row for row in moving if row[:3] == cell}
        ours, theirs = rows.get("triokafka"), rows.get("noida-db")
        if ours is None or theirs is None:
            continue
        label = f"{cell[0]} B, {cell[1]} partitions, {cell[2]} connections"
        found.append(_at_least(f"{label}: produce / noida-db", 0.8, ours, theirs, lambda r: r.produced_per_second))
        found.append(_at_least(f"{label}: consume / noida-db", 1.0, ours, theirs, lambda r: r.consumed_per_second))
    starts = {row.broker: row for row in starting}
    kafka, ours_started = starts.get("Apache Kafka"), starts.get("triokafka")
    if kafka is not None and ours_started is not None:
        found.append(_at_least("start-up, Apache Kafka's / ours", 10, kafka, ours_started, lambda r: r.empty_seconds))
        found.append(_at_least("memory, Apache Kafka's / ours", 5, kafka, ours_started, lambda r: r.empty_mib))
    for row in in_process:
        found.append(Verdict("running_broker ready, ms", 20, row.median_ms, row.median_ms < 20))
    return found


def _at_least(aim: str, target: float, one: Any, other: Any, figure: Callable[[Any], float]) -> Verdict:
    ratio = figure(one) / figure(other)
    return Verdict(aim, target, ratio, ratio >= target)


# -------------------------------------------------------------------- the run, and what it shows


def run(plan: Plan | None = None) -> Findings:
    """Measure; without a plan, everything."""
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


def show(found: Findings) -> None:
    """Print the tables, and the targets with what was measured."""
    cell: tuple[int, int, int] | None = None
    for row in found.moving:
        if row[:3] != cell:
            cell = row[:3]
            print(f"\n{row.size} B, partitions: {row.partitions}, connections: {row.connections}")
            columns = f"{'MB/s':>7} {'CPU s/GB':>9}"
            print(f"  {'broker':22} {'produced/s':>12} {columns} {'read/s':>12} {columns}")
        print(
            f"  {row.broker:22} {row.produced_per_second:12,.0f} {row.produced_megabytes:7,.0f}"
            f" {row.produce_cpu_per_gigabyte:9.2f} {row.consumed_per_second:12,.0f} {row.consumed_megabytes:7,.0f}"
            f" {row.consume_cpu_per_gigabyte:9.2f}"
        )
    if found.latency:
        print(f"\nLatency of acks=all at {_LATENCY_RATE:,} records a second; milliseconds")
        print(f"  {'broker':22} {'p50':>8} {'p99':>8} {'p99.9':>8} {'its CPU ms/1,000':>17}")
        for late in found.latency:
            figures = " ".join(f"{value:8.2f}" for value in late[1:4])
            print(f"  {late.broker:22} {figures} {late.cpu_ms_per_thousand:17.1f}")
    if found.starting:
        print("\nStart-up and memory")
        print(f"  {'broker':22} {'empty s':>8} {'MiB':>6} {'records':>10} {'s':>8} {'MiB':>6}")
        for start in found.starting:
            print(
                f"  {start.broker:22} {start.empty_seconds:8.2f} {start.empty_mib:6.0f} {start.records:10,}"
                f" {start.full_seconds:8.2f} {start.full_mib:6.0f}"
            )
    if found.partitions:
        print("\nCost of partitions")
        print(f"  {'broker':22} {'partitions':>10} {'create s':>9} {'KiB each':>9} {'idle CPU %':>10} {'restart s':>9}")
        for held in found.partitions:
            print(
                f"  {held.broker:22} {held.partitions:10,} {held.create_seconds:9.2f} {held.kib_per_partition:9.1f}"
                f" {held.idle_cpu_percent:10.1f} {held.restart_seconds:9.2f}"
            )
    for row_in in found.in_process:
        print(
            f"\nrunning_broker, in this process: first {row_in.first_ms:.1f} ms, median {row_in.median_ms:.1f} ms,"
            f" worst {row_in.worst_ms:.1f} ms"
        )
    print("\nTargets")
    for verdict in found.targets:
        word = "met    " if verdict.met else "NOT MET"
        print(f"  {word} {verdict.aim}: {verdict.found:.2f}, aimed at {verdict.target:g}")
    for failure in found.failures:
        print(f"  FAILED  {failure}")


def as_document(found: Findings) -> dict[str, Any]:
    """For JSON."""
    rows = {name: [row._asdict() for row in part] for name, part in found._asdict().items() if name != "failures"}
    return {**rows, "failures": found.failures}


def draw(found: Findings) -> Any:
    """What each broker spends on a gigabyte, load by load."""
    from matplotlib.figure import Figure

    cells = list(dict.fromkeys(row[:3] for row in found.moving))
    brokers = list(dict.fromkeys(row.broker for row in found.moving))
    figure = Figure(figsize=(11, 2 + 0.5 * max(1, len(cells))))
    height = 0.8 / max(1, len(brokers))
    for axis, what in zip(figure.subplots(1, 2, sharey=True), ("produce", "consume"), strict=True):
        for number, broker in enumerate(brokers):
            rows = {row[:3]: getattr(row, f"{what}_cpu_per_gigabyte") for row in found.moving if row.broker == broker}
            places = [position + number * height for position, cell in enumerate(cells) if cell in rows]
            axis.barh(places, [rows[cell] for cell in cells if cell in rows], height=height, label=broker)
        axis.set_xlabel(f"{what}: the broker's CPU seconds a GB")
        axis.set_yticks(range(len(cells)), [f"{size} B, {p} part., {c} conn." for size, p, c in cells])
    if brokers:
        figure.axes[0].legend()
    return figure


def plan_of(arguments: Sequence[str] | None = None) -> Plan:
    """What the command line asks for."""
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
    """Measure, print, and keep JSON and picture; 1 when a measurement failed."""
    found = run(plan_of(arguments))
    show(found)
    save("broker", as_document(found), draw(found))
    print(f"\nJSON and picture are in {RESULTS}")
    return 1 if found.failures else 0


if __name__ == "__main__":
    sys.exit(main())
