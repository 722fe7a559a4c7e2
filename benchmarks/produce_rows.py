"""The rows of the producer benchmark."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.produce_plan import Verdict


class Row(NamedTuple):
    """The medians of one client in one scenario."""

    broker: str
    size: int
    compression: str
    client: str
    records_per_second: float
    megabytes_per_second: float
    cpu_seconds_per_million: float
    peak_mib: float
    broker_cpu_seconds_per_million: float
    rounds: int


class LatencyRow(NamedTuple):
    """The medians of one client at a fixed rate; milliseconds."""

    broker: str
    client: str
    p50_ms: float
    p95_ms: float
    p99_ms: float
    p999_ms: float
    worst_ms: float
    cpu_seconds_per_million: float
    peak_mib: float


class MemoryRow(NamedTuple):
    """Peak memory of one client before and while the broker did not answer."""

    client: str
    before_mib: float
    peak_mib: float


class Findings(NamedTuple):
    """The results of a run."""

    rows: list[Row]
    latency: list[LatencyRow]
    memory: list[MemoryRow]
    targets: list[Verdict]
    failures: list[str]
