"""What one measurement is to do, and what comes out of it. Both travel between processes as JSON."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Final, NamedTuple

from triokafka.cli.load.load_meter import LoadMeter, peak_mib
from triokafka.cli.load.payloads import bytes_of, file_values, json_values
from triokafka.cli.load.quantiles import LatencySummary, summarize

_MEGABYTE: Final = 1_000_000


class Job(NamedTuple):
    """The load, and the settings that are the same for every client."""

    bootstrap: str
    topic: str
    records: int
    size: int
    compression: str
    batch_bytes: int = 131_072
    linger_ms: float = 5
    acks: str = "all"
    rate: float = 0
    """Records a second of a latency measurement."""
    seconds: float = 0
    """How long a measurement of memory sends."""
    buffer_bytes: int = 0
    """Limit of what a client may hold, for a measurement of memory; 0 leaves a roomy one."""
    partition: int = 0
    payload_file: str = ""

    def values(self) -> list[bytes]:
        """What is sent, in turns."""
        return file_values(self.payload_file) if self.payload_file else json_values(self.size)


class Throughput(NamedTuple):
    """As fast as the client can: from after the first acknowledged record to the last acknowledgement."""

    sent: int
    """Records in all, the one for warming up included: what the broker must have."""
    records_per_second: float
    megabytes_per_second: float
    cpu_seconds_per_million: float
    peak_mib: float

    @classmethod
    def measured(cls, meter: LoadMeter, values: Sequence[bytes], records: int, *, warm: int = 1) -> Throughput:
        """Return the result once all ``records`` are acknowledged; ``warm`` others preceded the meter."""
        wall, cpu = meter.stop()
        size = bytes_of(values, records)
        return cls(records + warm, records / wall, size / wall / _MEGABYTE, cpu / records * 1e6, peak_mib())


class Latency(NamedTuple):
    """At a fixed rate: from when a record was meant to be sent until the client told of its acknowledgement."""

    sent: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    p999_ms: float
    worst_ms: float
    cpu_seconds_per_million: float
    peak_mib: float


class Stall(NamedTuple):
    """Memory while the broker does not answer."""

    sent: int
    before_mib: float
    """Peak before the broker stopped."""
    peak_mib: float


class Acknowledgements:
    """Collects the latency of each record of a schedule; its callbacks may come from another thread.

    The measurement is of a program that runs already: the one full garbage collection that follows a program's imports
    takes 10 to 20 ms, and happens here.
    """

    def __init__(self, records: int) -> None:
        gc.collect()
        self.seconds: list[float] = [-1.0] * records

    def note(self, number: int, intended: float, now: float) -> None:
        """Record ``number`` is acknowledged."""
        self.seconds[number] = now - intended

    def latency(self, sent: int, cpu_seconds: float, peak_mib: float) -> Latency:
        """The result. Raises `RuntimeError` when a record was never acknowledged."""
        missing = sum(1 for value in self.seconds if value < 0)
        if missing:
            raise RuntimeError(f"{missing} of {len(self.seconds)} records were not acknowledged")
        found: LatencySummary = summarize(self.seconds)
        per_million = cpu_seconds / len(self.seconds) * 1e6
        return Latency(sent, found.p50, found.p95, found.p99, found.p999, found.worst, per_million, peak_mib)
