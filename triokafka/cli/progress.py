"""How far long work is: a bar on standard error, only where that is a terminal, gone when the work is done."""

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
"""The bar that is drawn now, if any."""
Advance = Callable[[float], None]
"""Called with how much more is done."""


def shows_progress(*, beside_output: bool = False) -> bool:
    """Whether to draw a bar: standard error is a terminal that can draw, rich is installed, and output goes elsewhere.

    ``beside_output`` is for work that prints its results while it goes on: then they must go elsewhere.
    """
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb" or find_spec("rich") is None:
        return False
    return not (beside_output and sys.stdout.isatty())


@contextmanager
def progress(what: str, total: float | None, *, shown: bool, unit: Unit = "") -> Iterator[Advance]:
    """A bar for the length of the block, up to ``total``; it runs to and fro where that is not known."""
    if not shown:
        yield lambda more: None
        return
    # Only here: importing it takes longer than most commands.
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
    """Print a line on standard error: above the bar, where one is drawn."""
    if _bars:
        _bars[-1].console.print(line, markup=False, highlight=False, soft_wrap=True)
    else:
        print(line, file=sys.stderr, flush=True)


def size_of_input() -> int | None:
    """How many bytes are left of standard input; None where nobody can know, as of a pipe or a terminal."""
    try:
        descriptor = sys.stdin.fileno()
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return None
        return max(0, found.st_size - os.lseek(descriptor, 0, os.SEEK_CUR))
    except (OSError, ValueError):
        return None
