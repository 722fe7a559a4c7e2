"""A measurement's job and its results. Both travel between processes as JSON."""

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
    """Seconds of sending in a measurement of memory."""
    buffer_bytes: int = 0
    """The client's buffer limit in a measurement of memory; 0 leaves it large."""
    partition: int = 0
    payload_file: str = ""

    def values(self) -> list[bytes]:
        """Return the values to send in rotation."""
        return file_values(self.payload_file) if self.payload_file else json_values(self.size)


class Throughput(NamedTuple):
    """Sending as fast as the client can: from the acknowledgement of the first record to that of the last."""

    sent: int
    """All records that the broker must have, including the warm-up record."""
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
    """Sending at a fixed rate: from the scheduled time of a record to the client's report of its acknowledgement."""

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
    """The peak before the broker stopped."""
    peak_mib: float


class Acknowledgements:
    """Collects the latency of each record of a schedule; its callbacks may come from another thread.

    The constructor runs the full garbage collection that follows a program's imports and takes 10 to 20 ms: the
    measured program is to be one that has run for a while.
    """

    def __init__(self, records: int) -> None:
        gc.collect()
        self.seconds: list[float] = [-1.0] * records

    def note(self, number: int, intended: float, now: float) -> None:
        """Note the acknowledgement of record ``number``."""
        self.seconds[number] = now - intended

    def latency(self, sent: int, cpu_seconds: float, peak_mib: float) -> Latency:
        """Return the result. Raises `RuntimeError` if a record was never acknowledged."""
        missing = sum(1 for value in self.seconds if value < 0)
        if missing:
            raise RuntimeError(f"{missing} of {len(self.seconds)} records were not acknowledged")
        found: LatencySummary = summarize(self.seconds)
        per_million = cpu_seconds / len(self.seconds) * 1e6
        return Latency(sent, found.p50, found.p95, found.p99, found.p999, found.worst, per_million, peak_mib)
