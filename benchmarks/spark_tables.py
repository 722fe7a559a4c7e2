"""The results of the Spark benchmark, and its targets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from benchmarks import plots, report

TUPLES: Final = ("tuples", "kafka-python tuples", "confluent-kafka tuples")
"""Readers that yield a tuple for each record: with our records, and with the clients of other libraries."""
TARGETS: Final = {"connector": 1.5, "ceiling": 0.85, **dict.fromkeys(TUPLES, 8.0)}
"""The least ratio of our rate to each reader's, for ``noop``; for the connector also for ``count`` and streams."""
TRANSPORT: Final = ("ready", "ready tuples", 8.0)
"""The same ratio for Spark alone, with prepared batches and prepared tuples. It contains no work of ours and shows how
much of the target above comes from batches."""

_STEADY: Final = (*TUPLES, "ready tuples")  # compared without the start

OURS: Final = "triokafka"
_MOST: Final = 2 / 3  # the part of a query that its start may take; with more, the rest would be noise of the start

ENOUGH_ROWS: Final = 100_000
"""Rows in each of `ENOUGH_PARTITIONS`. With fewer there is no target, since the start of a job or query is most of the
work."""
ENOUGH_PARTITIONS: Final = 10


class Row(NamedTuple):
    """The medians of one reader in one case.

    ``start_seconds`` and the processor time of the start are those of a query over one record of each partition; 0
    where that was not measured.
    """

    broker: str
    size: int
    compression: str
    mode: str
    operation: str
    reader: str
    rows: int
    seconds: float
    rows_per_second: float
    cpu_seconds_per_million: float
    start_seconds: float = 0.0
    start_cpu_seconds: float = 0.0

    def without_start(self) -> Row:
        """Return the row with the rates after the start of the query."""
        if not self.start_seconds or self.is_start():
            return self
        seconds, cpu = self.seconds - self.start_seconds, self._cpu_seconds() - self.start_cpu_seconds
        return self._replace(rows_per_second=self.rows / seconds, cpu_seconds_per_million=cpu / self.rows * 1e6)

    def is_start(self) -> bool:
        """Whether the start was most of either time: too few records, or a busy machine."""
        return self.start_seconds > self.seconds * _MOST or self.start_cpu_seconds > self._cpu_seconds() * _MOST

    def _cpu_seconds(self) -> float:
        return self.cpu_seconds_per_million * self.rows / 1e6


class Ratio(NamedTuple):
    """Our reader over another, by wall time and by processor time, which is more reliable on a busy machine.

    ``of`` is not ours for `TRANSPORT`. The rates of tuple readers, and of those compared with them, are those of
    `Row.without_start`: they read fewer records, and the start of some clients is long. ``target``, for wall time, is
    None without a target; ``reason`` says why.
    """

    broker: str
    size: int
    compression: str
    mode: str
    operation: str
    against: str
    ratio: float
    target: float | None
    reason: str = ""
    cpu_ratio: float = 0.0
    of: str = OURS


class IdleRow(NamedTuple):
    """One read of many partitions with few records."""

    broker: str
    reader: str
    mode: str
    partitions: int
    seconds: float


class MemoryRow(NamedTuple):
    """The largest memory of one Python worker of Spark in one case, and its memory before it read anything."""

    broker: str
    size: int
    compression: str
    reader: str
    peak_mib: float
    bound_mib: float | None


class Findings(NamedTuple):
    """The results of a run."""

    rows: list[Row]
    ratios: list[Ratio]
    idle: list[IdleRow]
    memory: list[MemoryRow]
    jars: list[str]
    failures: list[str]


def ratios(rows: Sequence[Row], partitions: int = ENOUGH_PARTITIONS) -> list[Ratio]:
    """Return the ratios of our reader to each other reader, and of prepared batches to prepared tuples, for each
    case."""
    found = []
    cases: dict[tuple[str, int, str, str, str], dict[str, Row]] = defaultdict(dict)
    for row in rows:
        case = (row.broker, row.size, row.compression, row.mode, row.operation)
        cases[case][row.reader] = row
    for case, by_reader in cases.items():
        ours = by_reader.get(OURS)
        for reader, row in by_reader.items():
            if ours is not None and reader != OURS:
                reason = _no_aim(case[4], reader, ours.rows, partitions)
                found.append(_ratio(case, ours, row, None if reason else TARGETS[reader], reason))
        batches, tuples, aim = TRANSPORT
        if batches in by_reader and tuples in by_reader:
            found.append(_ratio(case, by_reader[batches], by_reader[tuples], aim))
    return found


def _ratio(
    case: tuple[str, int, str, str, str], first: Row, second: Row, target: float | None, reason: str = ""
) -> Ratio:
    if second.reader in _STEADY:
        if first.is_start() or second.is_start():
            target, reason = None, reason or "starting took most of the time"
        else:
            first, second = first.without_start(), second.without_start()
    rate = first.rows_per_second / second.rows_per_second
    cpu = second.cpu_seconds_per_million / max(first.cpu_seconds_per_million, 1e-9)
    return Ratio(*case, second.reader, rate, target, reason, cpu, first.reader)


def _no_aim(operation: str, reader: str, rows: int, partitions: int) -> str:
    if reader in ("ready", "ready tuples"):
        return "fetches nothing"
    if operation == "group by" or (operation == "count" and reader != "connector"):
        return "the same work of Spark's in both"
    if reader == "connector" and (partitions < ENOUGH_PARTITIONS or rows < partitions * ENOUGH_ROWS):
        return f"fewer than {ENOUGH_PARTITIONS} partitions of {ENOUGH_ROWS:,} rows"
    return ""


def line(row: Row) -> str:
    """Return a row for the terminal."""
    start = f", {row.start_seconds:.2f} s to begin" if row.start_seconds else ""
    return (
        f"{_case(row)} {row.reader:22} {row.rows_per_second / 1e6:7.3f} M rows/s {row.seconds:8.2f} s"
        f" {row.cpu_seconds_per_million:7.2f} CPU s/M{start}"
    )


def _case(row: Row | Ratio) -> str:
    return f"{row.broker:13} {row.size:5} B {row.compression:5} {row.mode:13} {row.operation:9}"


def show(found: Findings) -> None:
    """Print the targets, the reads of many partitions, and memory. The rows were printed when they were measured."""
    print(f"\nours against the others (connector: {', '.join(found.jars) or 'not measured'})")
    for ratio in found.ratios:
        numbers = f"{ratio.ratio:6.2f}  {_aim(ratio)}; CPU {ratio.cpu_ratio:.2f}"
        first = "" if ratio.of == OURS else f"{ratio.of} "
        print(f"  {_verdict(ratio)} {_case(ratio)} {f'{first}/ {ratio.against}':24} {numbers}")
    aimed = [ratio for ratio in found.ratios if ratio.target is not None]
    missed = sum(not is_met(ratio) for ratio in aimed)
    print(f"  {len(aimed) - missed} of {len(aimed)} floors met")
    for row in found.idle:
        print(f"{row.broker:13} {row.partitions:3} idle partitions, {row.mode:13} {row.reader:26} {row.seconds:6.2f} s")
    for peak in found.memory:
        word = "       " if peak.bound_mib is None else "met    " if peak.peak_mib <= peak.bound_mib else "NOT MET"
        bound = "" if peak.bound_mib is None else f", at most {peak.bound_mib:.0f}"
        case = f"{peak.broker:13} {peak.size:5} B {peak.compression:5}"
        print(f"  {word} {case} {peak.reader:22} {peak.peak_mib:6.0f} MiB in the largest worker{bound}")
    for failure in found.failures:
        print(f"FAILED: {failure}")


def is_met(ratio: Ratio) -> bool:
    """Whether the target is met, or there is none."""
    return ratio.target is None or ratio.ratio >= ratio.target


def _verdict(ratio: Ratio) -> str:
    return "       " if ratio.target is None else "met    " if is_met(ratio) else "NOT MET"


def _aim(ratio: Ratio) -> str:
    return f"({ratio.reason})" if ratio.target is None else f"(at least {ratio.target})"


def as_document(found: Findings) -> dict[str, Any]:
    """Return the findings for JSON."""
    document = report.as_document(found._replace(jars=[]))
    return {**document, "jars": found.jars}


def draw(found: Findings) -> Any:
    """Plot the rows per second of every reader."""
    rows = [row for row in found.rows if row.operation == "noop"] or found.rows
    best = max((one.ratio for one in found.ratios if one.against == "connector"), default=None)
    title = "Rows a second that Spark reads from Kafka"
    return plots.bars(
        title if best is None else f"{title}: up to {plots.shown(best)} times as many as with Spark's connector",
        "million rows a second (longer is better)",
        lambda row: (
            f"{row.reader}: {row.size} B, compression {row.compression}, {row.mode}, from {row.broker}",
            row.rows_per_second / 1e6,
        ),
        rows,
    )
