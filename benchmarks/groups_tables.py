"""The results of the group benchmark: tables, targets, JSON and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from benchmarks import plots
from benchmarks.verdict import Verdict, at_least, at_most

_MICRO: Final = 1_000_000
_ENOUGH_TO_TELL: Final = 500_000
"""With fewer records, the time to load them is less than the difference between two starts."""


class GroupRow(NamedTuple):
    """One group of ``members`` forms, one member joins, one leaves. Medians of one broker."""

    protocol: str
    members: int
    broker: str
    kib_per_member: float
    form_seconds: float
    form_cpu: float
    form_bytes: float
    form_worst_ms: float
    """The longest latency of another client's small requests meanwhile."""
    add_seconds: float
    add_cpu: float
    add_bytes: float
    add_worst_ms: float
    remove_seconds: float
    remove_cpu: float
    remove_bytes: float
    remove_worst_ms: float


class ManyRow(NamedTuple):
    """``groups`` groups of ``each`` members form, then send heartbeats as fast as they are answered."""

    protocol: str
    groups: int
    each: int
    broker: str
    kib_per_member: float
    form_seconds: float
    form_cpu: float
    form_worst_ms: float
    beats_per_second: float
    beat_cpu_micros: float
    beat_worst_ms: float


class OffsetRow(NamedTuple):
    """Commits of ``size`` partitions in a request, or fetches of all offsets of a group; a broker's medians."""

    what: str
    size: int
    broker: str
    offsets_per_second: float
    cpu_micros_per_offset: float
    worst_ms: float


class LoadingRow(NamedTuple):
    """A start with ``records`` committed offsets in the log, for ``keys`` different keys."""

    keys: int
    records: int
    broker: str
    fill_cpu_micros: float
    """The broker's processor time to commit an offset."""
    empty_seconds: float
    """Seconds until the same broker, without offsets, answered that it has none."""
    serve_seconds: float
    """Seconds until the offsets of all groups had arrived."""
    load_cpu_micros: float
    """Processor time per record, less that of the start without offsets."""
    worst_ms: float
    bytes_per_key: float
    """Private memory, less that of the same broker without offsets."""


class Findings(NamedTuple):
    """The results of a run."""

    groups: list[GroupRow]
    many: list[ManyRow]
    offsets: list[OffsetRow]
    loading: list[LoadingRow]
    targets: list[Verdict]
    failures: list[str]


def verdicts(
    groups: Sequence[GroupRow], offsets: Sequence[OffsetRow], loading: Sequence[LoadingRow], ours: str
) -> list[Verdict]:
    """Return the targets whose values were measured."""
    found = []
    for row in offsets:
        if row.broker == ours and row.what == "commit" and row.size >= 100:
            rate = _MICRO / row.cpu_micros_per_offset
            found.append(at_least(f"offsets committed a CPU second, {row.size} in a request", 100_000, rate))
    for loaded in loading:
        if loaded.broker == ours and loaded.records >= _ENOUGH_TO_TELL:
            aim = f"CPU seconds to load 1,000,000 records, of {loaded.keys:,} keys"
            found.append(at_most(aim, 5, loaded.load_cpu_micros))
            found.append(at_most(f"ms that others wait while {loaded.records:,} records load", 100, loaded.worst_ms))
    for protocol in dict.fromkeys(row.protocol for row in groups):
        rows = sorted(
            (row for row in groups if row.broker == ours and row.protocol == protocol), key=lambda r: r.members
        )
        if len(rows) > 1:
            first, last = rows[-2:]
            growth = (last.form_cpu / first.form_cpu) / (last.members / first.members)
            aim = f"CPU a member of {last.members:,} over that of {first.members:,}, {protocol} protocol"
            found.append(at_most(aim, 1.3, growth))
            found.append(
                at_most(
                    f"ms that others wait while {last.members:,} join, {protocol} protocol", 250, last.form_worst_ms
                )
            )
    return found


def show(found: Findings) -> None:
    """Print the tables, and each target with its measured value."""
    for protocol in dict.fromkeys(row.protocol for row in found.groups):
        print(f"\nOne group under the {protocol} protocol: it forms; one more comes; one goes")
        print(
            f"  {'broker':14} {'members':>7} {'KiB each':>9} {'s':>7} {'CPU s':>7} {'KB sent':>8} {'others ms':>9}"
            f" {'+1: s':>7} {'CPU s':>7} {'-1: s':>7} {'CPU s':>7}"
        )
        for row in (row for row in found.groups if row.protocol == protocol):
            print(
                f"  {row.broker:14} {row.members:7,} {row.kib_per_member:9.1f} {row.form_seconds:7.2f}"
                f" {row.form_cpu:7.2f} {row.form_bytes / 1000:8,.0f} {row.form_worst_ms:9.0f} {row.add_seconds:7.2f}"
                f" {row.add_cpu:7.2f} {row.remove_seconds:7.2f} {row.remove_cpu:7.2f}"
            )
    if found.many:
        print("\nMany groups: they form, and heartbeat as fast as they are answered")
        print(
            f"  {'broker':14} {'protocol':>9} {'groups':>7} {'of':>4} {'KiB a member':>12} {'s':>7} {'CPU s':>7}"
            f" {'others ms':>9} {'beats/s':>9} {'CPU us':>7} {'others ms':>9}"
        )
        for m in found.many:
            print(
                f"  {m.broker:14} {m.protocol:>9} {m.groups:7,} {m.each:4} {m.kib_per_member:12.1f}"
                f" {m.form_seconds:7.2f} {m.form_cpu:7.2f} {m.form_worst_ms:9.0f} {m.beats_per_second:9,.0f}"
                f" {m.beat_cpu_micros:7.1f} {m.beat_worst_ms:9.0f}"
            )
    if found.offsets:
        print("\nOffsets")
        print(f"  {'broker':14} {'what':>7} {'in one':>7} {'offsets/s':>10} {'CPU us each':>11} {'others ms':>9}")
        for o in found.offsets:
            print(
                f"  {o.broker:14} {o.what:>7} {o.size:7,} {o.offsets_per_second:10,.0f} {o.cpu_micros_per_offset:11.2f}"
                f" {o.worst_ms:9.0f}"
            )
    if found.loading:
        print("\nLoading offsets after a restart")
        print(
            f"  {'broker':14} {'keys':>9} {'records':>9} {'fill us each':>12} {'empty s':>8} {'serves s':>8}"
            f" {'CPU us each':>11} {'others ms':>9} {'bytes a key':>11}"
        )
        for load in found.loading:
            print(
                f"  {load.broker:14} {load.keys:9,} {load.records:9,} {load.fill_cpu_micros:12.2f}"
                f" {load.empty_seconds:8.2f} {load.serve_seconds:8.2f} {load.load_cpu_micros:11.2f}"
                f" {load.worst_ms:9.0f} {load.bytes_per_key:11,.0f}"
            )
    print("\nTargets")
    for verdict in found.targets:
        word = "met    " if verdict.met else "NOT MET"
        print(f"  {word} {verdict.aim}: {verdict.found:,.2f}, aimed at {verdict.target:,g}")
    for failure in found.failures:
        print(f"  FAILED  {failure}")


def draw(found: Findings) -> Any:
    """Plot cost against the number of members and of offsets in a request. A straight line means growth in
    proportion."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 5))
    members, memory, commits = figure.subplots(1, 3)
    for broker in dict.fromkeys(row.broker for row in found.groups):
        for protocol in dict.fromkeys(row.protocol for row in found.groups):
            rows = [row for row in found.groups if (row.broker, row.protocol) == (broker, protocol)]
            if rows:
                sizes, label = [row.members for row in rows], f"{broker}, {protocol}"
                members.plot(sizes, [row.form_cpu for row in rows], marker="o", label=f"{label}: forms")
                members.plot(sizes, [row.add_cpu for row in rows], marker="x", linestyle="--", label=f"{label}: +1")
                memory.plot(sizes, [row.kib_per_member for row in rows], marker="o", label=label)
    for broker in dict.fromkeys(row.broker for row in found.offsets):
        rows_of = [row for row in found.offsets if row.broker == broker and row.what == "commit"]
        micros = [row.cpu_micros_per_offset for row in rows_of]
        commits.plot([row.size for row in rows_of], micros, marker="o", label=broker)
    titles = ("members of a group", "the broker's CPU s"), ("members of a group", "KiB a member")
    for axis, (x, y) in zip(
        (members, memory, commits), (*titles, ("offsets in a commit", "CPU us an offset")), strict=True
    ):
        axis.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
        axis.grid(alpha=0.3)
        axis.margins(x=0.45)
        plots.name_lines(axis)
    plots.head(figure, "What groups cost the broker: a straight line upwards is growth in proportion")
    return figure
