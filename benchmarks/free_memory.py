"""Free memory that the machine has used before, for a measurement that writes much.

A virtual machine gets a page of memory from its host when it first uses it, and may give it back while it is free. The
first use takes longer than to copy a page, and depends on what ran before.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

_USE: Final = """
import mmap, sys
from pathlib import Path
Path("/proc/self/oom_score_adj").write_text("1000")
memory = mmap.mmap(-1, int(sys.argv[1]))
for page in range(0, len(memory), mmap.PAGESIZE):
    memory[page] = 1
"""


def use_once(size: int) -> None:
    """Let a process write to ``size`` bytes of free memory, or to half of the free memory if that is less, and end.

    The kernel reuses the memory that was freed last first. Without ``/proc/meminfo`` this does nothing.
    """
    size = min(size, _free_bytes() // 2)
    if size > 0:
        subprocess.run([sys.executable, "-c", _USE, str(size)], check=True)


def _free_bytes() -> int:
    """Return the size of the memory that nothing uses."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemFree:")), 0)
