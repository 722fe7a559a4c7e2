"""Time, processor time and peak memory of this process, and the peak memory of others."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import Final

_KIB_PER_MIB: Final = 1024


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
