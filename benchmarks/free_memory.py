"""Free memory that is taken for the time of a measurement, so that the page cache has to use its own again.

A virtual machine gets a page of memory from its host when it first uses it. That takes longer than to copy a page, and
depends on what ran before. On a machine that has been up for a while, the page cache has all of the memory.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_LEFT_KIB: Final = 768 << 10
_HOLD: Final = """
import mmap, sys
from pathlib import Path
Path("/proc/self/oom_score_adj").write_text("1000")
memory = mmap.mmap(-1, int(sys.argv[1]))
for page in range(0, len(memory), mmap.PAGESIZE):
    memory[page] = 1
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def taken() -> Iterator[None]:
    """Take the free memory, but for 768 MiB; nothing without ``/proc/meminfo``."""
    size = _free_kib() - _LEFT_KIB
    if size <= 0:
        yield
        return
    command = [sys.executable, "-c", _HOLD, str(size << 10)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        try:
            yield
        finally:
            holder.kill()


def _free_kib() -> int:
    """Return the memory that nothing uses, in KiB."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("MemFree:")), 0)
