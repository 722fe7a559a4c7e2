"""The results of a demo run: counts, comparisons, table and picture."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from triokafka.cli.demo.flights import CarrierTotals


@dataclass(slots=True)
class Delivered:
    """One batch that a member handled: seconds since the start, member, partition, number of records."""

    at: float
    member: str
    partition: int
    count: int


@dataclass(slots=True)
class Rebalance:
    """One generation of the group as its members reported it."""

    at: float
    generation: int
    assignment: dict[str, list[int]] = field(default_factory=dict)


@dataclass(slots=True)
class Outage:
    """A killed node: seconds since the start when it was killed and when it was started again, and its job."""

    at: float
    what: str
    restarted_at: float | None = None


@dataclass(slots=True)
class Findings:
    """The data of the table, the plain line and the exit status."""

    sent: int = 0
    acknowledged: int = 0
    received: int = 0
    received_again: int = 0
    missing: list[str] = field(default_factory=list)
    committed: dict[int, int] = field(default_factory=dict)
    end_offsets: dict[int, int] = field(default_factory=dict)
    spark: dict[str, CarrierTotals] = field(default_factory=dict)
    spark_streaming: dict[str, CarrierTotals] = field(default_factory=dict)
    csv: dict[str, CarrierTotals] = field(default_factory=dict)
    produce_seconds: float = 0.0
    consume_seconds: float = 0.0
    delivered: list[Delivered] = field(default_factory=list)
    rebalances: list[Rebalance] = field(default_factory=list)
    faults: list[tuple[float, str]] = field(default_factory=list)
    produced: dict[int, list[tuple[float, int]]] = field(default_factory=dict)
    """Acknowledged records of each partition over time: seconds since the first send, and the sum so far."""
    produce_outages: list[Outage] = field(default_factory=list)
    consume_outages: list[Outage] = field(default_factory=list)

    @property
    def spark_count(self) -> int:
        """Flights that Spark counted, all carriers together."""
        return sum(totals.flights for totals in self.spark.values())

    def differences(self) -> list[str]:
        """Return a sentence for each failed comparison; empty if the run succeeded."""
        found = []
        if self.acknowledged != self.sent:
            found.append(f"{self.sent} records were sent and {self.acknowledged} acknowledged")
        if self.received != self.sent:
            found.append(f"{self.sent} records were sent and {self.received} distinct ones received")
        found += [f"missing: {description}" for description in self.missing]
        found += [
            f"{outage.what}, and did not start again"
            for outage in (*self.produce_outages, *self.consume_outages)
            if outage.restarted_at is None
        ]
        if not self.end_offsets:
            found.append("the topic has no end offsets")
        for partition, end in sorted(self.end_offsets.items()):
            if self.committed.get(partition) != end:
                found.append(f"partition {partition}: committed {self.committed.get(partition)}, the log ends at {end}")
        for what, answer in (("Spark", self.spark), ("Spark by micro-batch", self.spark_streaming)):
            found += [
                f"carrier {carrier}: {what} returned {answer.get(carrier)}, the file has {self.csv.get(carrier)}"
                for carrier in sorted(self.csv.keys() | answer.keys())
                if self.csv.get(carrier) != answer.get(carrier)
            ]
        return found

    def plain_line(self) -> str:
        """Return the counts in one line for scripts."""
        return f"sent={self.sent} acknowledged={self.acknowledged} received={self.received} spark={self.spark_count}"

    def rows(self) -> list[tuple[str, str, bool | None]]:
        """Return the table's rows: title, value, and whether the comparison holds (None without a comparison)."""
        agree = sum(1 for carrier in self.csv if self.csv[carrier] == self.spark.get(carrier))
        streamed = sum(1 for carrier in self.csv if self.csv[carrier] == self.spark_streaming.get(carrier))
        even = sum(1 for partition, end in self.end_offsets.items() if self.committed.get(partition) == end)
        produced = self.acknowledged / self.produce_seconds if self.produce_seconds else 0.0
        consumed = (self.received + self.received_again) / self.consume_seconds if self.consume_seconds else 0.0
        return [
            ("sent", f"{self.sent:,}", self.sent > 0),
            ("acknowledged", f"{self.acknowledged:,}", self.acknowledged == self.sent),
            ("received, distinct", f"{self.received:,}", self.received == self.sent),
            ("received again after a hand-over", f"{self.received_again:,}", None),
            (
                "committed offsets at the end of the log",
                f"{even} of {len(self.end_offsets)} partitions",
                even == len(self.end_offsets) > 0,
            ),
            (
                "Spark equals the CSV file (flights, delay minutes)",
                f"{agree} of {len(self.csv)} carriers, {self.spark_count:,} flights",
                self.csv == self.spark,
            ),
            (
                "Spark by micro-batch equals the CSV file",
                f"{streamed} of {len(self.csv)} carriers",
                self.csv == self.spark_streaming,
            ),
            *self._outage_rows(),
            ("produced, messages a second", f"{produced:,.0f}", None),
            ("consumed, messages a second (paced, with rebalances)", f"{consumed:,.0f}", None),
        ]

    def longest_pause(self, partition: int) -> float:
        """Return the longest time without an acknowledgement of a partition's records, in seconds."""
        times = [at for at, _ in self.produced.get(partition, [])]
        return max((later - at for at, later in pairwise(times)), default=0.0)

    def _outage_rows(self) -> list[tuple[str, str, bool | None]]:
        outages = [*self.produce_outages, *self.consume_outages]
        if not outages:
            return []
        back = sum(outage.restarted_at is not None for outage in outages)
        pause = max(map(self.longest_pause, self.produced), default=0.0)
        return [
            ("nodes killed and started again", f"{back} of {len(outages)}", back == len(outages)),
            ("longest pause between acknowledgements of a partition", f"{pause:.1f} s", None),
        ]


def save_picture(findings: Findings, path: str) -> None:
    """Draw records per partition and member over time, with marks for rebalances, as a PNG at ``path``."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    members = sorted({item.member for item in findings.delivered})
    partitions = sorted({item.partition for item in findings.delivered})
    colours = {member: f"C{index}" for index, member in enumerate(members)}
    if findings.produce_outages:
        figure, (sent, totals, lanes) = pyplot.subplots(3, 1, figsize=(11, 11), height_ratios=(2, 2, 3))
        totals.sharex(lanes)
        _draw_acknowledgements(findings, sent)
    else:
        figure, (totals, lanes) = pyplot.subplots(2, 1, figsize=(11, 8), sharex=True, height_ratios=(2, 3))
    for member in members:
        mine = [item for item in findings.delivered if item.member == member]
        counts, total = [], 0
        for item in mine:
            total += item.count
            counts.append(total)
        totals.step([item.at for item in mine], counts, where="post", color=colours[member], label=member)
    totals.set_ylabel("records handled, per member")
    totals.legend(loc="lower right")
    for partition in partitions:
        for item in findings.delivered:
            if item.partition == partition:
                lanes.plot(
                    item.at, partition, marker="|", markersize=4 + item.count**0.5 / 3, color=colours[item.member]
                )
    lanes.set_ylabel("partition")
    lanes.set_yticks(partitions)
    lanes.set_xlabel("seconds since the group began")
    for axis in (totals, lanes):
        for rebalance in findings.rebalances:
            axis.axvline(rebalance.at, color="grey", linestyle=":", linewidth=1)
        for at, _ in findings.faults:
            axis.axvline(at, color="red", linestyle="--", linewidth=1)
        _draw_outages(findings.consume_outages, axis)
    top = totals.get_ylim()[1]
    for rebalance in findings.rebalances:
        totals.text(rebalance.at, top, f" generation {rebalance.generation}", rotation=90, va="top", fontsize=7)
    for outage in findings.consume_outages:
        totals.text(outage.at, top, f" {outage.what}", rotation=90, va="top", fontsize=7, color="red")
    for at, what in findings.faults:
        totals.text(at, top * 0.55, f" {what}", rotation=90, va="top", fontsize=7, color="red")
    figure.suptitle("336,776 flights through one group: who handled which partition when")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _draw_acknowledgements(findings: Findings, axis: Any) -> None:
    """Draw the acknowledged records of each partition over time, and the nodes' outages."""
    for partition, counts in sorted(findings.produced.items()):
        times, sums = zip(*counts, strict=True)
        axis.step(times, sums, where="post", label=f"partition {partition}")
    axis.set_ylabel("records acknowledged")
    axis.set_xlabel("seconds since the first record was sent")
    axis.legend(loc="upper left")
    _draw_outages(findings.produce_outages, axis)
    for outage in findings.produce_outages:
        axis.text(outage.at, axis.get_ylim()[1], f" {outage.what}", rotation=90, va="top", fontsize=7, color="red")


def _draw_outages(outages: Iterable[Outage], axis: Any) -> None:
    """Shade the times in which nodes were down."""
    for outage in outages:
        end = outage.at if outage.restarted_at is None else outage.restarted_at
        axis.axvspan(outage.at, end, color="red", alpha=0.12, linewidth=0)
