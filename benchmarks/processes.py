"""Processor time and memory of other processes, by process id."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_KIB_PER_MIB: Final = 1024


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process and its running descendants; 0 without ``/proc``."""
    ticks = os.sysconf("SC_CLK_TCK")
    return sum((int(fields[11]) + int(fields[12])) / ticks for fields in _family(pid).values())


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process and its descendants; 0 without ``/proc``."""
    return sum(int(fields[21]) for fields in _family(pid).values()) * os.sysconf("SC_PAGE_SIZE") / _KIB_PER_MIB**2


def private_mib(pid: int) -> float:
    """Return the resident memory without file-backed pages, such as mapped logs."""
    pages = 0
    for member in _family(pid):
        try:
            _, resident, shared = Path("/proc", str(member), "statm").read_text().split()[:3]
        except OSError:
            continue  # it has just ended
        pages += int(resident) - int(shared)
    return pages * os.sysconf("SC_PAGE_SIZE") / _KIB_PER_MIB**2


def _family(pid: int) -> dict[int, list[str]]:
    """Return the fields of ``/proc/PID/stat`` after the name, for a process and its running descendants."""
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
