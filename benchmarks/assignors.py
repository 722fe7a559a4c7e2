"""The cost of an assignment for the leader of a group, by group size.

    python -m benchmarks.assignors           every strategy and kind of group, up to 1,000 members of 10,000 partitions
    python -m benchmarks.assignors --quick   smaller groups

Each group gets two assignments: the first one, and a second one after one member in twenty has left, which is based on
the assignment of the others. Times are processor time of one assignment, the median of the rounds. No broker is needed.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from statistics import median
from typing import Any, Final, NamedTuple

from benchmarks import plots
from benchmarks.report import as_document as as_document
from benchmarks.report import save
from benchmarks.verdict import Verdict, at_most
from triokafka.assignors import BUILT_IN, Assignment, MemberSubscription, PartitionAssignor
from triokafka.assignors.assignor import Members, PartitionRacks

PARTITIONS_A_MEMBER: Final = 10
TOPICS: Final = 100
RACKS: Final = 3
REPLICAS: Final = 2
_TARGETS: Final = {"equal": 2.0, "mixed": 10.0, "equal, racks": 10.0, "mixed, racks": 10.0}
"""Seconds for 1,000 members of 10,000 partitions."""
_TARGET_SIZE: Final = 1_000


class Row(NamedTuple):
    """One kind of group of one size under one strategy, in seconds of processor time."""

    strategy: str
    kind: str
    members: int
    partitions: int
    fresh_seconds: float
    again_seconds: float
    moved: int
    """Partitions that moved in the second assignment although their owner was still a member."""


class Findings(NamedTuple):
    """The results of a run."""

    rows: list[Row]
    targets: list[Verdict]
    failures: list[str]


def group_of(kind: str, members: int) -> tuple[dict[str, MemberSubscription], dict[str, int], PartitionRacks]:
    """Return a synthetic group; the same arguments give the same group."""
    chance = random.Random(f"{kind} {members}")
    topics = min(TOPICS, members)
    counts = {f"topic-{number:03}": members * PARTITIONS_A_MEMBER // topics for number in range(topics)}
    names = list(counts)
    in_racks = kind.endswith("racks")
    racks = [f"rack-{number}" for number in range(RACKS)]
    subscriptions = {}
    for number in range(members):
        wanted = names if kind.startswith("equal") else sorted(chance.sample(names, max(1, topics // 10)))
        rack = chance.choice(racks) if in_racks else None
        subscriptions[f"member-{number:04}"] = MemberSubscription(wanted, rack_id=rack)
    replicas: PartitionRacks = {}
    if in_racks:
        replicas = {t: [frozenset(chance.sample(racks, REPLICAS)) for _ in range(n)] for t, n in counts.items()}
    return subscriptions, counts, replicas


def _joining_again(
    strategy: str, before: Members, assigned: dict[str, Assignment]
) -> tuple[PartitionAssignor, dict[str, MemberSubscription]]:
    """Return the remaining members, each with the partitions that it owned."""
    members = {}
    for number, (name, member) in enumerate(before.items()):
        if number % 20 != 5:
            itself = BUILT_IN[strategy]()
            itself.on_assignment(assigned[name], 1)
            owned = assigned[name].partitions if itself.cooperative else ()
            members[name] = member._replace(user_data=itself.user_data(member.topics), owned_partitions=owned)
    return BUILT_IN[strategy](), members


def measure(strategy: str, kind: str, size: int, rounds: int) -> Row:
    """Measure the assignment of one group, ``rounds`` times."""
    members, counts, racks = group_of(kind, size)
    fresh, again = [], []
    moved = 0
    for _ in range(rounds):
        start = time.process_time()
        assigned = BUILT_IN[strategy]().assign(members, counts, racks)
        fresh.append(time.process_time() - start)
        assignor, left = _joining_again(strategy, members, assigned)
        start = time.process_time()
        reassigned = assignor.assign(left, counts, racks)
        again.append(time.process_time() - start)
        moved = sum(len(set(assigned[name].partitions).difference(reassigned[name].partitions)) for name in left)
    return Row(strategy, kind, size, sum(counts.values()), median(fresh), median(again), moved)


def run(sizes: Sequence[int] = (10, 30, 100, 300, _TARGET_SIZE), rounds: int = 3) -> Findings:
    """Measure all strategies, kinds and sizes."""
    rows = [measure(strategy, kind, size, rounds) for strategy in BUILT_IN for kind in _TARGETS for size in sizes]
    targets = []
    for row in rows:
        if row.members == _TARGET_SIZE:
            aim = f"s for {row.members:,} members of {row.partitions:,} partitions, {row.kind}, {row.strategy}"
            worst = max(row.fresh_seconds, row.again_seconds)
            targets.append(at_most(aim, _TARGETS[row.kind], worst))
    return Findings(rows, targets, [])


def show(found: Findings) -> None:
    """Print the table, and each target with its measured value."""
    print(f"  {'strategy':18} {'kind':13} {'members':>7} {'partitions':>10} {'fresh s':>8} {'again s':>8} {'moved':>7}")
    for row in found.rows:
        print(
            f"  {row.strategy:18} {row.kind:13} {row.members:7,} {row.partitions:10,} {row.fresh_seconds:8.3f}"
            f" {row.again_seconds:8.3f} {row.moved:7,}"
        )
    for verdict in found.targets:
        print(
            f"  {'met   ' if verdict.met else 'MISSED'} {verdict.found:7.3f} (at most {verdict.target:g}) {verdict.aim}"
        )


def draw(found: Findings) -> Any:
    """Plot seconds against members: one plot for each kind of group, one line for each strategy."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 8))
    for axis, kind in zip(figure.subplots(2, 2).flat, _TARGETS, strict=True):
        for strategy in BUILT_IN:
            rows = [row for row in found.rows if (row.strategy, row.kind) == (strategy, kind)]
            axis.plot([row.members for row in rows], [row.fresh_seconds for row in rows], marker="o", label=strategy)
        axis.set_title(f"{kind}: {PARTITIONS_A_MEMBER} partitions a member")
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("members of a group")
        axis.set_ylabel("CPU seconds of a first assignment")
        axis.margins(x=0.25)
        plots.name_lines(axis)
    plots.head(figure, "Processor time of one assignment, by members and strategy")
    return figure


def main() -> int:
    """Run the command. Return 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.assignors", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="groups of up to 100 members, one round")
    found = run((10, 30, 100), 1) if parser.parse_args().quick else run()
    show(found)
    save("assignors", as_document(found), draw(found))
    return 0 if all(verdict.met for verdict in found.targets) else 1


if __name__ == "__main__":
    sys.exit(main())
