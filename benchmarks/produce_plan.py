"""The measurements of the producer benchmark, and its targets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from benchmarks.clients.catalogue import PRODUCERS

BROKERS: Final = ("sink", "triokafka broker", "noida-db")
SIZES: Final = (100, 1024)
COMPRESSIONS: Final = ("none", "lz4", "zstd")
LATENCY_CLIENTS: Final = ("triokafka send", "confluent produce", "aiokafka send", "kafka-python send")
LATENCY_RATE: Final = 5_000
MEMORY_CLIENTS: Final = ("triokafka send", "triokafka send_many", *LATENCY_CLIENTS[1:])
MEMORY_LIMIT: Final = 32 << 20

_LEAST_RECORDS: Final = 10_000
_ONLY_ONCE: Final = (" idempotent", " plain")


class Scenario(NamedTuple):
    """One block of the table."""

    broker: str
    size: int
    compression: str

    @property
    def label(self) -> str:
        """The label in tables and plots."""
        return f"{self.broker}, {self.size} B, {self.compression}"


class Plan(NamedTuple):
    """The measurements and their sizes."""

    scenarios: tuple[Scenario, ...]
    clients: tuple[str, ...] = tuple(PRODUCERS)
    records: int = 300_000
    rounds: Mapping[str, int] = {"sink": 3}
    """Rounds by broker; others get `other_rounds`."""
    other_rounds: int = 2
    latency_seconds: float = 3.0
    stall_seconds: float = 10.0

    def rounds_against(self, broker: str) -> int:
        """Return how often each client is measured."""
        return self.rounds.get(broker, self.other_rounds)

    def clients_in(self, scenario: Scenario) -> tuple[str, ...]:
        """Return the clients of a scenario.

        Idempotent clients (idempotence costs per batch, not per byte) and those without kernels run in one scenario of
        a broker only.
        """
        every_kind = scenario.size == SIZES[0] and scenario.compression == COMPRESSIONS[0]
        return tuple(client for client in self.clients if every_kind or not client.endswith(_ONLY_ONCE))

    def records_for(self, client: str, scenario: Scenario) -> int:
        """Return a number of records that takes a few tenths of a second, whatever the client and the load."""
        # With compression and large values, fast clients are less far ahead.
        work = {"none": 1, "lz4": 2, "zstd": 4}[scenario.compression] * max(1.0, scenario.size / 400)
        share = PRODUCERS[client].share
        records = self.records * (share / work if share > 1 else share / math.sqrt(work))
        return max(_LEAST_RECORDS, round(records / _LEAST_RECORDS) * _LEAST_RECORDS)


def everything() -> tuple[Scenario, ...]:
    """Return the plan with every broker, size and codec."""
    return tuple(Scenario(b, s, c) for b in BROKERS for s in SIZES for c in COMPRESSIONS)


QUICK: Final = Plan(
    scenarios=(
        Scenario("sink", 100, "none"),
        Scenario("sink", 100, "lz4"),
        Scenario("sink", 1024, "none"),
        Scenario("sink", 1024, "lz4"),
        Scenario("triokafka broker", 100, "none"),
        Scenario("noida-db", 100, "none"),
    ),
    rounds={"sink": 2},
    other_rounds=1,
    latency_seconds=2.0,
    stall_seconds=3.0,
)
"""A plan of less than two minutes."""


class Target(NamedTuple):
    """Against the sink, the least ratio of ``ours`` to ``theirs`` in speed and in processor time."""

    size: int
    compression: str
    ours: str
    theirs: str
    times: float


TARGETS: Final = (
    Target(100, "none", "triokafka send", "confluent produce", 2.0),
    Target(100, "none", "triokafka send", "kafka-python send", 20.0),
    Target(100, "none", "triokafka send", "aiokafka send", 7.0),
    Target(100, "none", "triokafka send plain", "kafka-python send", 2.0),
    Target(100, "none", "triokafka send_many", "confluent produce_batch", 6.0),
    Target(100, "none", "triokafka send_many arrow", "confluent produce_batch", 6.0),
    Target(100, "lz4", "triokafka send", "confluent produce", 1.5),
    Target(1024, "none", "triokafka send", "confluent produce", 1.5),
    Target(1024, "lz4", "triokafka send", "confluent produce", 1.2),
)


class Verdict(NamedTuple):
    """A target, its measured value, and whether it is met."""

    aim: str
    target: float
    speed: float
    """Our records per second over theirs."""
    processor: float
    """Their processor time per record over ours."""
    met: bool


class Measured(NamedTuple):
    """The values of one client in one scenario that targets compare."""

    records_per_second: float
    cpu_seconds_per_million: float


def verdicts(found: Mapping[tuple[Scenario, str], Measured], targets: Sequence[Target] = TARGETS) -> list[Verdict]:
    """Return the verdicts on the targets whose two clients were both measured."""
    result = []
    for target in targets:
        scenario = Scenario("sink", target.size, target.compression)
        ours, theirs = found.get((scenario, target.ours)), found.get((scenario, target.theirs))
        if ours is None or theirs is None:
            continue
        speed = ours.records_per_second / theirs.records_per_second
        processor = theirs.cpu_seconds_per_million / ours.cpu_seconds_per_million
        aim = f"{target.size} B, {target.compression}: {target.ours} / {target.theirs}"
        result.append(Verdict(aim, target.times, speed, processor, min(speed, processor) >= target.times))
    return result
