"""The results of a demo run: counts, comparisons and table. `picture` draws them."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from triokafka.cli.demo.flights import CarrierTotals


@dataclass(slots=True)
class Delivered:
    """One batch that a member handled: seconds since the start, member, partition, number of records."""

    at: float
    member: str
    partition: int
    count: int


@dataclass(slots=True)
class Ownership:
    """A member's time with one partition, in seconds since the start.

    It ends with the member's revocation or kill; ``until`` is None if neither was seen.
    """

    partition: int
    member: str
    since: float
    until: float | None = None


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
    ownerships: list[Ownership] = field(default_factory=list)
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
