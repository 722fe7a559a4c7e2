"""Time, processor time and peak memory of this process, and the peak memory of others."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import Final

_KIB_PER_MIB: Final = 1024


class LoadMeter:
    """Measures time and processor time (of all threads) between `start` and `stop`."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Start measuring; call it after the first acknowledgement, so that connections and caches are warm."""
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def stop(self) -> tuple[float, float]:
        """Return seconds and processor seconds since `start`."""
        return time.perf_counter() - self._wall, time.process_time() - self._cpu


def peak_mib(pid: int | None = None) -> float:
    """Return the peak resident memory of this process or of another one.

    It does not use ``ru_maxrss``, which on Linux includes the parent's memory at the fork.
    """
    try:
        status = Path("/proc", "self" if pid is None else str(pid), "status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _KIB_PER_MIB
    found = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(found.split()[1]) / _KIB_PER_MIB
