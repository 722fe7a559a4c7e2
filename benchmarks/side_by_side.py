"""Shared parts of the benchmarks of whole clients: one process for each measurement, a broker process, and the
table."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from benchmarks.clients.job import Job
from triokafka.cli.load.load_meter import peak_mib


class Measurement(NamedTuple):
    """One client in one round."""

    records_per_second: float
    cpu_seconds_per_million: float
    peak_mib: float


class Row(NamedTuple):
    """The medians of one client."""

    client: str
    records_per_second: float
    cpu_seconds_per_million: float
    peak_mib: float


class LoadMeter:
    """Measures the time between `start`, after a warm-up record, and `stop`."""

    def start(self) -> None:
        """Start the clock once the first record is acknowledged."""
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def stop(self, records: int) -> Measurement:
        """Stop the clock once the last record is acknowledged."""
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return Measurement(records / wall, cpu / records * 1e6, peak_mib())


Client = tuple[Callable[[Job, str], Measurement], str, float]
"""The measuring function, its argument, and its share of ``--records``."""


@contextmanager
def broker_process(module: str, *arguments: str) -> Iterator[str]:
    """Run a broker of ``benchmarks`` in its own process and yield its address."""
    command = [sys.executable, "-m", module, *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("ready "), line
        yield line.split()[1]
    finally:
        process.kill()
        process.communicate()


def measure(module: str, client: str, job: Job) -> Measurement:
    """Run one measurement of a benchmark module in its own process."""
    command = [sys.executable, "-m", module, "--one", client, json.dumps(job._asdict())]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=600)
    return Measurement(*json.loads(done.stdout.splitlines()[-1]))


def answer_one(clients: Mapping[str, Client], client: str, job: str) -> None:
    """Run the measurement that `measure` requested, print the result, and end this process."""
    function, how, _ = clients[client]
    print(json.dumps(function(Job(**json.loads(job)), how)), flush=True)
    os._exit(0)  # some clients need a while to exit


def medians(measured: Mapping[str, list[Measurement]]) -> list[Row]:
    """Return a row for each client: the median of each figure over the rounds."""
    return [Row(client, *map(statistics.median, zip(*found, strict=True))) for client, found in measured.items()]


def print_table(title: str, rows: list[Row], targets: Mapping[tuple[str, str], float]) -> None:
    """Print the rows, and the target ratios in records per second and processor time."""
    print(title)
    print(f"{'client':28} {'records/s':>12} {'CPU s/M':>9} {'peak MiB':>9}")
    for row in rows:
        print(f"{row.client:28} {row.records_per_second:12,.0f} {row.cpu_seconds_per_million:9.3f} {row.peak_mib:9.0f}")
    by_name = {row.client: row for row in rows}
    for (ours, theirs), target in targets.items():
        if ours in by_name and theirs in by_name:
            speed = by_name[ours].records_per_second / by_name[theirs].records_per_second
            cost = by_name[theirs].cpu_seconds_per_million / by_name[ours].cpu_seconds_per_million
            print(f"{ours} / {theirs}: {speed:.1f}, processor time {cost:.1f} (target for 100 bytes: {target})")
