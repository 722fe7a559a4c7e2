"""The picture of a running query's lag in ``docs/spark.md``, drawn from what the worked example prints.

``python examples/spark_windows.py localhost:9092 | python -m docs.lag_picture`` writes ``docs/spark-lag.svg``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

PICTURE: Final = Path(__file__).parent / "spark-lag.svg"

_BATCH: Final = re.compile(r"batch +(\d+): +(\d+) behind")
_STOP: Final = "stopped, and started again"


class Run(NamedTuple):
    """How many offsets the query was behind after each batch, and after how many batches it was stopped."""

    behind: list[int]
    stopped_after: int | None


def parse(lines: Iterable[str]) -> Run:
    """Read what the example prints."""
    behind: list[int] = []
    stopped_after = None
    for line in lines:
        if found := _BATCH.match(line):
            behind.append(int(found[2]))
        elif line.startswith(_STOP):
            stopped_after = len(behind)
    return Run(behind, stopped_after)


def draw(run: Run) -> Any:
    """A matplotlib figure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 2.6), layout="constrained")
    axis = figure.subplots()
    axis.bar(range(len(run.behind)), run.behind, color="#4477aa")
    if run.stopped_after is not None:
        axis.axvline(run.stopped_after - 0.5, color="#aa3377", linestyle="--")
        axis.text(run.stopped_after - 0.4, max(run.behind, default=0) * 0.92, _STOP, color="#aa3377")
    axis.set_xticks(range(len(run.behind)))
    axis.set_xlabel("micro-batch")
    axis.set_ylabel("offsets behind the latest")
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    return figure


def save(figure: Any, path: Path) -> None:
    """Write the figure as SVG, the same for the same figures."""
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "lag"}):
        figure.savefig(path, metadata={"Date": None})


def main() -> int:
    """Read the example's output, show it, and draw it; 1 when it has no batches."""
    lines = list(sys.stdin)
    sys.stdout.writelines(lines)
    run = parse(lines)
    if not run.behind:
        print("there are no batches to draw", file=sys.stderr)
        return 1
    save(draw(run), PICTURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
