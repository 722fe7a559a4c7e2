"""The cost of a rebalance: a group over 1,000 partitions takes one more member, with each protocol.

    python -m benchmarks.rebalance           3, 30 and 300 members; simulated and on sockets
    python -m benchmarks.rebalance --quick   3 and 30 members

In the simulated world broker and members share one process and virtual time, in which code takes none: seconds are
those of waiting, and each run gives the same numbers. On sockets the broker has its own process, the members share
another, and seconds are real. Heartbeats have their usual intervals, which decide most of the time.
`benchmarks.rebalance_play` defines the counted values.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import trio

from benchmarks import plots
from benchmarks.clients.brokers import in_memory_broker
from benchmarks.rebalance_play import MODES, Cost, add_one
from benchmarks.report import as_document as as_document
from benchmarks.report import save
from benchmarks.verdict import Verdict, at_most
from triokafka.testing import Simulation, run_simulation, running_broker

PARTITIONS: Final = 1_000
SIZES: Final = (3, 30, 300)
_GROWTH: Final = 1.3
"""The allowed growth per tenfold number of members: the timing of heartbeats decides the number of rounds."""


class Row(NamedTuple):
    """One group that takes one more member."""

    where: str
    mode: str
    members: int
    messages: int
    bytes: int
    seconds: float
    partitions_moved: int
    partitions_stopped: int
    stopped_seconds: float
    """Seconds without a reader, on average over all partitions."""
    longest_stop: float
    members_stopped: int

    @classmethod
    def of(cls, where: str, mode: str, members: int, partitions: int, cost: Cost) -> Row:
        """Return the row of a cost."""
        return cls(
            where,
            mode,
            members,
            cost.messages,
            cost.size,
            cost.seconds,
            cost.must_move,
            cost.stopped,
            cost.partition_seconds / partitions,
            cost.longest,
            cost.members_stopped,
        )


class Findings(NamedTuple):
    """The results of a run."""

    rows: list[Row]
    targets: list[Verdict]
    failures: list[str]


def simulated(mode: str, members: int, partitions: int = PARTITIONS, seed: int = 1) -> Cost:
    """Measure in virtual time."""

    async def story(simulation: Simulation) -> Cost:
        world = simulation.host("broker").world
        async with running_broker(world=world, listeners=("PLAINTEXT://broker:9092",)):
            return await add_one("broker:9092", mode, members, partitions, simulation.host("members").world)

    return run_simulation(story, seed=seed)


def on_sockets(mode: str, members: int, partitions: int = PARTITIONS) -> Cost:
    """Measure in real time."""
    with in_memory_broker() as broker:
        return trio.run(add_one, broker.bootstrap, mode, members, partitions)


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Return the growth of messages and bytes per member from one size to the next."""
    found = []
    for where, mode in dict.fromkeys((row.where, row.mode) for row in rows):
        sizes = [row for row in rows if (row.where, row.mode) == (where, mode)]
        for small, large in pairwise(sizes):
            for what in ("messages", "bytes"):
                growth = (getattr(large, what) / large.members) / (getattr(small, what) / small.members)
                aim = f"{what} a member of {large.members} over those of {small.members}, {mode}, {where}"
                found.append(at_most(aim, _GROWTH, growth))
    return found


def run(sizes: Sequence[int] = SIZES) -> Findings:
    """Measure all sizes and protocols."""
    rows, failures = [], []
    for where, measure in (("simulated", simulated), ("sockets", on_sockets)):
        for mode in MODES:
            for members in sizes:
                try:
                    rows.append(Row.of(where, mode, members, PARTITIONS, measure(mode, members)))
                except trio.TooSlowError:
                    failures.append(f"{members} members, {mode}, {where}: the group did not become stable")
    return Findings(rows, verdicts(rows), failures)


def show(found: Findings) -> None:
    """Print the table, and each target with its measured value."""
    print(
        f"  {'':10} {'':12} {'members':>7} {'messages':>8} {'KB':>7} {'s':>6} {'moved':>6} {'stopped':>7}"
        f" {'mean stop s':>11} {'longest s':>9} {'idle members':>12}"
    )
    for row in found.rows:
        print(
            f"  {row.where:10} {row.mode:12} {row.members:7} {row.messages:8,} {row.bytes / 1000:7,.0f}"
            f" {row.seconds:6.2f} {row.partitions_moved:6,} {row.partitions_stopped:7,} {row.stopped_seconds:11.4f}"
            f" {row.longest_stop:9.3f} {row.members_stopped:12}"
        )
    for verdict in found.targets:
        print(
            f"  {'met   ' if verdict.met else 'MISSED'} {verdict.found:6.2f} (at most {verdict.target:g}) {verdict.aim}"
        )
    for failure in found.failures:
        print(f"  FAILED  {failure}")


def draw(found: Findings) -> Any:
    """Plot messages, bytes and time without a reader against members; a straight line means growth in proportion."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 5))
    shown = (
        ("messages", "messages"),
        ("bytes", "bytes"),
        ("stopped_seconds", "seconds between two readers, mean of all partitions"),
    )
    for axis, (field, label) in zip(figure.subplots(1, 3), shown, strict=True):
        for where, mode in dict.fromkeys((row.where, row.mode) for row in found.rows):
            rows = [row for row in found.rows if (row.where, row.mode) == (where, mode)]
            style = "-" if where == "simulated" else "--"
            values = [getattr(row, field) for row in rows]
            axis.plot([row.members for row in rows], values, style, marker="o", label=f"{mode}, {where}")
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("members of a group that takes one more")
        axis.set_ylabel(label)
        axis.margins(x=0.35)
        plots.name_lines(axis)
    plots.head(figure, "What one more member costs a group, by its size and protocol")
    return figure


def main() -> int:
    """Run the command. Return 1 if a target is missed or a measurement failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rebalance", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="groups of up to 30 members")
    found = run(SIZES[:2]) if parser.parse_args().quick else run()
    show(found)
    save("rebalance", as_document(found), draw(found))
    return 0 if not found.failures and all(verdict.met for verdict in found.targets) else 1


if __name__ == "__main__":
    sys.exit(main())
