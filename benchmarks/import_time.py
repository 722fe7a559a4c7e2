"""The time of ``import triokafka`` beside ``import trio``, in fresh processes that take turns.

The package loads its names at first use, so each row shows the cost of one name.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from typing import NamedTuple

ROUNDS = 15
BASELINE = "import trio"
PROGRAMS = (
    BASELINE,
    "import triokafka",
    "import triokafka; triokafka.Producer",
    "import triokafka; triokafka.Consumer",
    "import triokafka; triokafka.AdminClient",
)
_TIMED = "from time import process_time as t; s = t(); {program}; print(t() - s)"


class Row(NamedTuple):
    """Processor milliseconds of one program, and their ratio to ``import trio``."""

    program: str
    milliseconds: float
    ratio: float


def run() -> list[Row]:
    """Measure all programs, interleaved; medians."""
    seconds: dict[str, list[float]] = {program: [] for program in PROGRAMS}
    for turn in range(ROUNDS + 1):
        for program in PROGRAMS:
            command = [sys.executable, "-c", _TIMED.format(program=program)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            if turn:  # the first round warms the file cache
                seconds[program].append(float(done.stdout))
    medians = {program: statistics.median(taken) for program, taken in seconds.items()}
    return [Row(program, 1e3 * taken, taken / medians[BASELINE]) for program, taken in medians.items()]


def show(rows: list[Row]) -> None:
    """Print the table."""
    print(f"{'program':42} {'ms':>7} {'of import trio':>15}")
    for row in rows:
        print(f"{row.program:42} {row.milliseconds:7.1f} {row.ratio:15.2f}")


def main() -> None:
    """Measure and print."""
    show(run())


if __name__ == "__main__":
    main()
