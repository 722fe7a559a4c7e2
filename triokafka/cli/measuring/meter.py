"""Time, processor time and memory of this process, and of others by their number."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from triokafka.cli.measuring.job import Throughput, bytes_of

_KIB_PER_MIB: Final = 1024
_MEGABYTE: Final = 1_000_000


class Meter:
    """Takes time and processor time (of all threads) between `start` and `stop`."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begin; a first record was acknowledged, so that everything is warm."""
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def stop(self) -> tuple[float, float]:
        """Seconds, and processor seconds, since `start`."""
        return time.perf_counter() - self._wall, time.process_time() - self._cpu

    def throughput(self, values: Sequence[bytes], records: int, *, warm: int = 1) -> Throughput:
        """The last of ``records`` is acknowledged; ``warm`` others were before `start`."""
        wall, cpu = self.stop()
        return Throughput(
            records + warm,
            records / wall,
            bytes_of(values, records) / wall / _MEGABYTE,
            cpu / records * 1e6,
            peak_mib(),
        )


def peak_mib(pid: int | None = None) -> float:
    """Most resident memory so far, of this process or of another one.

    Not ``ru_maxrss``: on Linux that begins with what the parent had when it started this process.
    """
    try:
        status = Path("/proc", "self" if pid is None else str(pid), "status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _KIB_PER_MIB
    found = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(found.split()[1]) / _KIB_PER_MIB


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and of all that it started and that still run; 0 where there is no ``/proc``."""
    ticks = os.sysconf("SC_CLK_TCK")
    return sum((int(fields[11]) + int(fields[12])) / ticks for fields in _family(pid).values())


def resident_mib(pid: int) -> float:
    """Memory that a process and all that it started hold now; 0 where there is no ``/proc``."""
    return sum(int(fields[21]) for fields in _family(pid).values()) * os.sysconf("SC_PAGE_SIZE") / _KIB_PER_MIB**2


def private_mib(pid: int) -> float:
    """As `resident_mib`, without what is a file's, such as mapped logs."""
    pages = 0
    for member in _family(pid):
        try:
            _, resident, shared = Path("/proc", str(member), "statm").read_text().split()[:3]
        except OSError:
            continue  # it has just ended
        pages += int(resident) - int(shared)
    return pages * os.sysconf("SC_PAGE_SIZE") / _KIB_PER_MIB**2


def _family(pid: int) -> dict[int, list[str]]:
    """What ``/proc/PID/stat`` says behind the name, of a process and of all that it started and that still run."""
    found: dict[int, list[str]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            found[int(entry.name)] = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
    family = {pid}
    while more := {child for child, fields in found.items() if int(fields[1]) in family} - family:
        family |= more
    return {member: found[member] for member in family if member in found}
