"""The plots of the simpler tables. The modules of the other tables have a ``draw`` function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from benchmarks.plots import Bar, bars, shown


class Picture(NamedTuple):
    """The parts of a plot: the claim, computed from the rows; the axis; label and value of a row; the value at which
    both are even."""

    claim: Callable[[Sequence[Any]], str]
    axis: str
    bar: Bar
    even: float | None = None


def _range(values: Iterable[float]) -> str:
    found = sorted(values)
    return shown(found[0]) if len(found) == 1 else f"{shown(found[0])} to {shown(found[-1])}"


def _of(rows: Sequence[Any], name: str) -> Any:
    """Return the row of a client or tool, or the first one."""
    return next((row for row in rows if row[0] == name), rows[0])


def _consuming(rows: Sequence[Any]) -> str:
    ours, theirs = _of(rows, "triokafka poll"), _of(rows, "confluent consume(1000)")
    ratio = shown(theirs.cpu_seconds_per_million / ours.cpu_seconds_per_million)
    return f"Consuming with poll takes {ratio} times less processor time than confluent-kafka's consume"


PICTURES: Final[dict[str, Picture]] = {
    "record_codec": Picture(
        lambda rows: (
            f"Record batches: up to {shown(max(row.records_per_second for row in rows) / 1e6)} million a second"
        ),
        "million records a second (longer is better)",
        lambda row: (f"{row.operation}, {row.batches} batches", row.records_per_second / 1e6),
    ),
    "protocol_codec": Picture(
        lambda rows: f"{sum(row.ratio < 1 for row in rows)} of {len(rows)} are faster than kafka-python's",
        "our time over kafka-python's (shorter is better)",
        lambda row: (f"{row.message} {row.operation}", row.ratio),
        even=1,
    ),
    "import_time": Picture(
        lambda rows: f"`import triokafka` takes {shown(rows[1].ratio)} times as long as `import trio`",
        "times `import trio` (shorter is better)",
        lambda row: (row.program, row.ratio),
        even=1,
    ),
    "blocking": Picture(
        lambda rows: f"kafka-python takes {_range(row.cpu_ratio for row in rows)} times as much processor time",
        "processor time of kafka-python over triokafka.blocking's (longer is better)",
        lambda row: (row.scenario, row.cpu_ratio),
        even=1,
    ),
    "asyncio": Picture(
        lambda rows: (
            f"aiokafka takes more time in {sum(row.ratio > 1 for row in rows)} of {len(rows)} programs, up to"
            f" {shown(max(row.ratio for row in rows))} times as much"
        ),
        "processor time, or latency, of aiokafka over triokafka.asyncio's (longer is better)",
        lambda row: (f"{row.scenario}, {row.loop}", row.ratio),
        even=1,
    ),
    "mirror": Picture(
        lambda rows: f"{shown(_of(rows, 'triokafka').ratio)} times as many records per CPU second as MirrorMaker 2",
        "records per CPU second over MirrorMaker 2's (longer is better)",
        lambda row: (row.tool, row.ratio),
        even=1,
    ),
    "consume": Picture(
        _consuming,
        "CPU seconds a million records of 100 bytes (shorter is better)",
        lambda row: (row.client, row.cpu_seconds_per_million),
    ),
}
"""By table."""


def draw(table: str, rows: Sequence[Any]) -> Any:
    """Return the matplotlib figure of a table of `PICTURES`."""
    picture = PICTURES[table]
    return bars(picture.claim(rows), picture.axis, picture.bar, rows, even=picture.even)
