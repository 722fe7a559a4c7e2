"""What Spark's processes use: CPU of the JVM and of the Python processes below it, and memory of the Python workers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_KIB: Final = 1024.0


def spark_cpu() -> float:
    """CPU seconds so far of this process's JVM and of the Python processes below it, also of those that have ended."""
    parents, ticks = _processes()
    return sum(ticks[pid] for pid in _below(parents)) / os.sysconf("SC_CLK_TCK")


def forget_peaks() -> None:
    """Begin `worker_peak_mib` anew, for the workers that there are."""
    for pid in _workers():
        try:
            Path(f"/proc/{pid}/clear_refs").write_text("5")
        except OSError:
            continue  # it has just ended


def worker_peak_mib() -> float:
    """The most resident memory that any one of the Python workers has had since `forget_peaks`."""
    return max((_peak(pid) for pid in _workers()), default=0.0) / _KIB


def _peak(pid: int) -> float:
    try:
        said = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    return next((float(row.split()[1]) for row in said.splitlines() if row.startswith("VmHWM:")), 0.0)


def _workers() -> Iterable[int]:
    parents, _ = _processes()
    return [pid for pid in _below(parents) if "pyspark" in _command(pid) and not _is_jvm(pid)]


def _processes() -> tuple[dict[int, int], dict[int, int]]:
    """The parent of each process of the machine; and its CPU ticks, with those of its children that have ended: the
    process that plans a streaming query does not live to be asked."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            pid = int(entry.name)
            parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    return parents, ticks


def _below(parents: dict[int, int]) -> set[int]:
    found = {pid for pid in parents if parents[pid] == os.getpid() and _is_jvm(pid)}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _is_jvm(pid: int) -> bool:
    return "org.apache.spark" in _command(pid)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
