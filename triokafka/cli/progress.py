"""Progress bars on standard error, only on a terminal, erased at the end of the work."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Literal

Unit = Literal["", "bytes"]
if TYPE_CHECKING:
    from rich.progress import Progress

_bars: Final[list[Progress]] = []
"""The visible bar, if any."""
Advance = Callable[[float], None]
"""Receives the amount of work done since the last call."""


def shows_progress(*, beside_output: bool = False) -> bool:
    """Whether to draw a bar: standard error is a capable terminal, rich is installed, and standard output is free.

    ``beside_output`` is for work that prints results as it runs: standard output must then not be a terminal.
    """
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb" or find_spec("rich") is None:
        return False
    return not (beside_output and sys.stdout.isatty())


@contextmanager
def progress(what: str, total: float | None, *, shown: bool, unit: Unit = "") -> Iterator[Advance]:
    """Show a bar during the block, up to ``total``; without a total it is indeterminate."""
    if not shown:
        yield lambda more: None
        return
    # A late import: it takes longer than most commands.
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    amount = DownloadColumn(binary_units=True) if unit == "bytes" else MofNCompleteColumn()
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        amount,
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
    ) as bar:
        task = bar.add_task(what, total=total)
        _bars.append(bar)
        try:
            yield lambda more: bar.advance(task, more)
        finally:
            _bars.remove(bar)


def say(line: str) -> None:
    """Print a line on standard error, above the bar if there is one."""
    if _bars:
        _bars[-1].console.print(line, markup=False, highlight=False, soft_wrap=True)
    else:
        print(line, file=sys.stderr, flush=True)


def size_of_input() -> int | None:
    """Return the remaining bytes of standard input; None if unknown, as for a pipe or a terminal."""
    try:
        descriptor = sys.stdin.fileno()
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return None
        return max(0, found.st_size - os.lseek(descriptor, 0, os.SEEK_CUR))
    except (OSError, ValueError):
        return None
