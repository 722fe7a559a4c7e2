"""Processor time of Spark's JVM and its Python processes, and memory of the Python workers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

OTHERS: Final = "TRIOKAFKA_BENCHMARK_OTHERS"
"""Set in the environment of the workers of all other readers. Spark reuses workers for the next query: without separate
workers, our reader would be charged for the imports and memory of others, and would share its process settings with
them."""

_forked: Final[dict[int, int]] = {}
_KIB: Final = 1024.0


def spark_cpu() -> float:
    """Return the CPU seconds so far of this process's JVM and of the Python processes below it, including ended
    ones."""
    found = _processes()
    below = _below(found)
    # The JVM counts its children when they end: a process that plans a streaming query ends before it can be read.
    # Nobody counts the children of Spark's daemon, so their last values are kept.
    _forked.update(
        (pid, found[pid].ticks) for pid in below if found[pid].parent in below and not _is_jvm(found[pid].parent)
    )
    others = sum(found[pid].ticks for pid in below - _forked.keys())
    reaped = sum(found[pid].reaped_ticks for pid in below if _is_jvm(pid))
    return (sum(_forked.values()) + others + reaped) / os.sysconf("SC_CLK_TCK")


def forget_peaks() -> None:
    """Restart the measurement of `worker_peak_mib` for the existing workers."""
    for pid in _workers():
        try:
            Path(f"/proc/{pid}/clear_refs").write_text("5")
        except OSError:
            continue  # it has just ended


def worker_peak_mib(*, others: bool = False) -> float:
    """Return the largest resident memory of a Python worker since `forget_peaks`.

    ``others``: of the workers in which `OTHERS` is set, instead of those in which it is not.
    """
    return max((_peak(pid) for pid in _workers() if _is_other(pid) is others), default=0.0) / _KIB


def _is_other(pid: int) -> bool:
    try:
        return f"{OTHERS}=".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def _peak(pid: int) -> float:
    try:
        said = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    return next((float(row.split()[1]) for row in said.splitlines() if row.startswith("VmHWM:")), 0.0)


def _workers() -> Iterable[int]:
    return [pid for pid in _below(_processes()) if "pyspark" in _command(pid) and not _is_jvm(pid)]


class _Process(NamedTuple):
    parent: int
    ticks: int
    reaped_ticks: int  # of its ended children


def _processes() -> dict[int, _Process]:
    """Return all processes of the machine."""
    found: dict[int, _Process] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            own, reaped = (sum(map(int, fields[first : first + 2])) for first in (11, 13))
            found[int(entry.name)] = _Process(int(fields[1]), own, reaped)
    return found


def _below(processes: dict[int, _Process]) -> set[int]:
    found = {pid for pid, process in processes.items() if process.parent == os.getpid() and _is_jvm(pid)}
    while more := {pid for pid, process in processes.items() if process.parent in found} - found:
        found |= more
    return found


def _is_jvm(pid: int) -> bool:
    return "org.apache.spark" in _command(pid)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
