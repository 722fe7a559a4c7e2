"""The results of the broker benchmark: tables, targets, JSON and a picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from benchmarks import plots
from benchmarks.verdict import Verdict, at_least

LATENCY_RATE: Final = 1_000


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
    """Milliseconds with one record in each request and acks=all, and the broker's processor time for a thousand
    records."""

    broker: str
    p50_ms: float
    p99_ms: float
    p999_ms: float
    cpu_ms_per_thousand: float


class StartRow(NamedTuple):
    """Seconds and MiB of one broker. A new directory is created as well; the other two were left by a clean stop."""

    broker: str
    new_seconds: float
    empty_seconds: float
    empty_mib: float
    records: int
    full_seconds: float
    full_mib: float


class PartitionRow(NamedTuple):
    """The cost of partitions: creation, memory, idle processor time and restart."""

    broker: str
    partitions: int
    create_seconds: float
    kib_per_partition: float
    idle_cpu_percent: float
    restart_seconds: float


class InProcessRow(NamedTuple):
    """`triokafka.testing.running_broker`: milliseconds until the block is entered, with all modules imported."""

    first_ms: float
    median_ms: float
    worst_ms: float


class Findings(NamedTuple):
    """The results of a run."""

    moving: list[MovingRow]
    latency: list[LatencyRow]
    starting: list[StartRow]
    partitions: list[PartitionRow]
    in_process: list[InProcessRow]
    targets: list[Verdict]
    failures: list[str]


def verdicts(
    moving: Sequence[MovingRow], starting: Sequence[StartRow], in_process: Sequence[InProcessRow]
) -> list[Verdict]:
    """Return the targets whose values were measured."""
    found = []
    for cell in dict.fromkeys(row[:3] for row in moving if row.size == 1024):
        rows = {row.broker: row for row in moving if row[:3] == cell}
        ours, theirs = rows.get("triokafka"), rows.get("noida-db")
        if ours is None or theirs is None:
            continue
        label = f"{cell[0]} B, {cell[1]} partitions, {cell[2]} connections"
        found.append(_ratio(f"{label}: produce / noida-db", 0.8, ours, theirs, lambda r: r.produced_per_second))
        found.append(_ratio(f"{label}: consume / noida-db", 1.0, ours, theirs, lambda r: r.consumed_per_second))
    starts = {row.broker: row for row in starting}
    kafka, ours_started = starts.get("Apache Kafka"), starts.get("triokafka")
    if kafka is not None and ours_started is not None:
        label = f"with {ours_started.records:,} records, Apache Kafka's / ours"
        found.append(_ratio("start-up, Apache Kafka's / ours", 10, kafka, ours_started, lambda r: r.empty_seconds))
        found.append(_ratio(f"start-up {label}", 10, kafka, ours_started, lambda r: r.full_seconds))
        found.append(_ratio("memory, Apache Kafka's / ours", 5, kafka, ours_started, lambda r: r.empty_mib))
        found.append(_ratio(f"memory {label}", 5, kafka, ours_started, lambda r: r.full_mib))
    for row in in_process:
        found.append(Verdict("running_broker ready, ms", 20, row.median_ms, row.median_ms < 20))
    return found


def _ratio(aim: str, target: float, one: Any, other: Any, figure: Callable[[Any], float]) -> Verdict:
    return at_least(aim, target, figure(one) / figure(other))


def show(found: Findings) -> None:
    """Print the tables, and each target with its measured value."""
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
        print(f"\nLatency of acks=all at {LATENCY_RATE:,} records a second; milliseconds")
        print(f"  {'broker':22} {'p50':>8} {'p99':>8} {'p99.9':>8} {'its CPU ms/1,000':>17}")
        for late in found.latency:
            figures = " ".join(f"{value:8.2f}" for value in late[1:4])
            print(f"  {late.broker:22} {figures} {late.cpu_ms_per_thousand:17.1f}")
    if found.starting:
        print("\nStart-up and memory, and how many times as much Apache Kafka takes")
        print(f"  {'broker':22} {'new s':>15} {'empty s':>15} {'MiB':>13} {'records':>10} {'s':>15} {'MiB':>13}")
        for start in found.starting:
            print(f"  {start.broker:22} {_start_figures(start, found.starting)}")
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


def _start_figures(row: StartRow, rows: Sequence[StartRow]) -> str:
    kafka = next((row for row in rows if row.broker == "Apache Kafka"), None)

    def beside(figure: Callable[[StartRow], float]) -> str:
        if kafka is None or row is kafka or math.isnan(figure(row)):
            return " " * 7
        return f"{figure(kafka) / figure(row):6.1f}x"

    new = f"{row.new_seconds:8.2f}{beside(lambda r: r.new_seconds)}"
    empty = f"{row.empty_seconds:8.2f}{beside(lambda r: r.empty_seconds)} {row.empty_mib:6.0f}"
    full = f"{row.full_seconds:8.2f}{beside(lambda r: r.full_seconds)} {row.full_mib:6.0f}"
    return f"{new}{empty}{beside(lambda r: r.empty_mib)} {row.records:10,} {full}{beside(lambda r: r.full_mib)}"


def draw(found: Findings) -> Any:
    """Plot the processor time of each broker for a gigabyte, by load."""
    from matplotlib.figure import Figure

    cells = list(dict.fromkeys(row[:3] for row in found.moving))
    brokers = list(dict.fromkeys(row.broker for row in found.moving))
    figure = Figure(figsize=(11, 2 + 0.5 * max(1, len(cells))))
    height = 0.8 / max(1, len(brokers))
    for axis, what in zip(figure.subplots(1, 2, sharey=True), ("produce", "consume"), strict=True):
        for number, broker in enumerate(brokers):
            rows = {row[:3]: getattr(row, f"{what}_cpu_per_gigabyte") for row in found.moving if row.broker == broker}
            places = [position + number * height for position, cell in enumerate(cells) if cell in rows]
            values = [rows[cell] for cell in cells if cell in rows]
            axis.barh(places, values, height=height, color=plots.colour_of(broker))
            for place, value in zip(places, values, strict=True):
                text = f"{plots.shown(value)} {broker}"
                axis.annotate(text, (value, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
        axis.set_xlabel(f"{what}: the broker's CPU seconds a GB (shorter is better)")
        axis.margins(x=0.35)
        plots.quiet(axis)
        axis.set_yticks(range(len(cells)), [f"{size} B, {p} part., {c} conn." for size, p, c in cells])
    plots.head(figure, "What a broker spends on a gigabyte of values, by load")
    return figure
