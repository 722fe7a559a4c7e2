"""Layout of what happened over time: a lane for each partition or node, time runs to the right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from docs.diagrams.svg import SMALL, Svg, width_of

WIDTH: Final = 720
_LEFT: Final = 96
_RIGHT: Final = 12
_LANE: Final = 30
_BAR: Final = 22


class Bar(NamedTuple):
    """A part of a lane, in seconds. ``weak`` bars are pale; a text that has no room is shortened, or left out."""

    since: float
    until: float
    colour: str
    text: str = ""
    weak: bool = False


class Mark(NamedTuple):
    """A line through all lanes, with its text above them."""

    at: float
    text: str
    colour: str = ""


def draw(
    title: str,
    description: str,
    lanes: Sequence[tuple[str, Sequence[Bar]]],
    marks: Sequence[Mark],
    *,
    end: float,
    unit: str = "seconds",
) -> Svg:
    """Draw the lanes from second 0 to ``end``, and the marks above them, each on a row where it has room."""
    svg = Svg(title, description, WIDTH)
    scale = (WIDTH - _LEFT - _RIGHT) / end
    rows = _rows([(_LEFT + mark.at * scale, width_of(mark.text)) for mark in marks])
    top = 12 + 20 * (max(rows, default=-1) + 1)
    bottom = top + _LANE * len(lanes)
    for place, (name, bars) in enumerate(lanes):
        y = top + place * _LANE
        svg.text(_LEFT - 10, y + _LANE / 2 + 5, name, anchor="end")
        for bar in bars:
            left, right = _LEFT + max(0.0, bar.since) * scale, _LEFT + min(end, bar.until) * scale
            if right <= left:
                continue
            strength = "k" if bar.weak else "f"
            svg.box(round(left, 1), y + 4, round(right - left, 1), _BAR, f"{strength}-{bar.colour}", round_=2)
            text = next((one for one in _shorter(bar.text) if width_of(one, size=SMALL) + 8 < right - left), "")
            if text:
                kind = f"s t-{bar.colour}" if bar.weak else "s on"
                svg.text(round(left + 6, 1), y + 19, text, classes=f"{kind} w")
    for mark, row in zip(marks, rows, strict=True):
        x = round(_LEFT + mark.at * scale, 1)
        y = top - 8 - 20 * row
        classes = f"l-{mark.colour}" if mark.colour else "l"
        svg.line(x, y - 11, x, bottom, f"{classes} h")
        left = x + 5 + width_of(mark.text) < WIDTH
        svg.text(
            x + 5 if left else x - 5,
            y,
            mark.text,
            anchor="start" if left else "end",
            classes=f"t-{mark.colour}" if mark.colour else "",
        )
    svg.line(_LEFT, bottom + 4, WIDTH - _RIGHT, bottom + 4, "r")
    step = next(one for one in (0.5, 1, 2, 5, 10, 20, 50, 100) if end / one <= 12)
    for number in range(int(end / step) + 1):
        x = round(_LEFT + number * step * scale, 1)
        svg.line(x, bottom + 4, x, bottom + 9, "r")
        svg.text(x, bottom + 22, f"{number * step:g}", anchor="middle", classes="s q")
    svg.text(WIDTH - _RIGHT, bottom + 38, unit, anchor="end", classes="s q")
    svg.height = bottom + 44
    return svg


def _shorter(text: str) -> tuple[str, ...]:
    return text, text.partition(",")[0]


def _rows(texts: Sequence[tuple[float, float]]) -> list[int]:
    """Choose a row above the lanes for each text, of which begin and width are given: the last one lowest."""
    free: list[float] = []
    rows: list[int] = []
    for x, wide in reversed(texts):
        left = x if x + 5 + wide < WIDTH else x - wide - 5
        row = next((row for row, begin in enumerate(free) if left + wide + 10 < begin), len(free))
        if row == len(free):
            free.append(0.0)
        free[row] = left
        rows.append(row)
    return rows[::-1]
