"""The common style of all plots of the benchmarks: a colour for each program, figures at the bars, names at the
lines."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Any, Final

Bar = Callable[[Any], tuple[str, float]]
"""Label and value of a row."""

COLOURS: Final = {
    "confluent": "#c8791d",
    "librdkafka": "#c8791d",
    "aiokafka": "#2f8f5b",
    "kafka-python": "#8a4f9e",
    "noida": "#b5912a",
    "apache kafka": "#7a5c4d",
    "mirrormaker": "#7a5c4d",
    "connector": "#7a5c4d",
    "java": "#7a5c4d",
    "ceiling": "#9a9a9a",
    "ready": "#9a9a9a",
    "tuples": "#9a9a9a",
}
"""Colours by a part of the label in lower case; all other labels are ours."""
_PAPER: Final = {"facecolor": "white", "alpha": 0.8, "linewidth": 0, "boxstyle": "square,pad=0.05"}
OURS: Final = "#3b6fb6"
TEXT: Final = "#222222"
QUIET: Final = "#6b6b6b"
BEHIND: Final = "#b9c7de"
_OTHER_LINES: Final = ("#3b6fb6", "#c8791d", "#2f8f5b", "#8a4f9e", "#b5912a", "#7a5c4d", "#b3242a")


def colour_of(label: str) -> str:
    """Return the colour of the program that a label names."""
    small = label.lower()
    return next((colour for part, colour in COLOURS.items() if part in small), OURS)


def shown(value: float) -> str:
    """Return a figure with two or three digits."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def bars(title: str, axis_label: str, bar: Bar, rows: Sequence[Any], *, even: float | None = None) -> Any:
    """Return a matplotlib figure with a bar for each row, its value beside it, and a line where both are ``even``.

    Bars on the worse side of that line are pale.
    """
    from matplotlib.figure import Figure

    labels, values = zip(*map(bar, reversed(rows)), strict=True)
    height = 1.5 + 0.27 * len(rows)
    figure = Figure(figsize=(10, height))
    axis = figure.subplots()
    colours = [colour_of(label) for label in labels]
    if even is not None:
        longer_is_better = "longer is better" in axis_label
        colours = [
            BEHIND if value != even and (value < even) == longer_is_better else colour
            for value, colour in zip(values, colours, strict=True)
        ]
    axis.barh(range(len(labels)), values, color=colours, height=0.72)
    axis.set_yticks(range(len(labels)), labels)
    axis.set_xlim(0, max(values, default=1.0) * 1.12 or 1.0)
    for place, value in enumerate(values):
        axis.annotate(
            shown(value),
            (value, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=10,
            color=TEXT,
            bbox=_PAPER,
        )
    if even is not None:
        axis.axvline(even, color=TEXT, linewidth=1, zorder=0.5)
    axis.set_xlabel(axis_label)
    head(figure, title)
    quiet(axis)
    return figure


def head(figure: Any, title: str) -> None:
    """Write the claim above the figure."""
    width = int(figure.get_size_inches()[0] * 9)
    figure.suptitle(
        "\n".join(textwrap.wrap(title, width)), x=0.01, ha="left", fontsize=13, fontweight="bold", color=TEXT
    )


def quiet(axis: Any) -> None:
    """Hide frame and ticks."""
    axis.tick_params(labelsize=10, length=0, colors=TEXT)
    axis.xaxis.label.set_color(QUIET)
    axis.yaxis.label.set_color(QUIET)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)


def name_lines(axis: Any) -> None:
    """Give each line of a logarithmic plot a colour, and write its label at its end instead of a legend."""
    from math import log10

    lines = [line for line in axis.lines if len(line.get_xdata()) and min(line.get_ydata()) > 0]
    if not lines:
        return
    lowest, highest = (log10(value) for value in axis.get_ylim())
    step = (highest - lowest) / (axis.figure.get_size_inches()[1] * 72 / 11)
    free = lowest
    for number, line in enumerate(axis.lines):
        line.set_color(_OTHER_LINES[number % len(_OTHER_LINES)])
    for line in sorted(lines, key=lambda line: line.get_ydata()[-1]):
        place = max(log10(line.get_ydata()[-1]), free)
        free = place + step
        x = line.get_xdata()[-1]
        axis.annotate(
            line.get_label(),
            (x, 10**place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=line.get_color(),
            annotation_clip=False,
        )
    quiet(axis)
