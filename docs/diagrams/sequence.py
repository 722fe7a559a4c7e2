"""Layout of messages between tasks, objects and machines: a column for each, time runs down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from docs.diagrams.svg import SMALL, TEXT, Svg, width_of

WIDTH: Final = 720
_HEAD: Final = 54
_LINE: Final = 17
_GAP: Final = 14
_SELF: Final = 26


class Step(NamedTuple):
    """A message from one column to another, or something that a column does itself if ``to`` is the same.

    ``text`` may have several lines; names of the code stand in backquotes. ``colour`` is one of `svg`'s.
    """

    source: str
    to: str
    text: str
    colour: str = ""
    dashed: bool = False


class Note(NamedTuple):
    """A remark over the whole width."""

    text: str


class Log(NamedTuple):
    """A partition's log as a column has it: offsets up to ``end`` (exclusive), committed below ``high_watermark``."""

    column: str
    end: int
    high_watermark: int
    first: int = 0


Row = Step | Note | tuple[Log, ...]


def draw(title: str, description: str, columns: Sequence[tuple[str, str]], rows: Sequence[Row]) -> Svg:
    """Draw columns (name, and a second line for what it is) and the rows between them."""
    svg = Svg(title, description, WIDTH)
    places = _places(columns)
    end = _HEAD + 8 + sum(_height(row) for row in rows)
    for name, what in columns:
        x = places[name]
        svg.line(x, _HEAD, x, end, "r")
        wide = max(width_of(name), width_of(what, size=SMALL), 70) + 16
        left = min(max(2, x - wide / 2), WIDTH - wide - 2)
        svg.box(left, 4, wide, _HEAD - 8)
        svg.text(left + wide / 2, 23 if what else 31, name, anchor="middle", classes="w")
        if what:
            svg.text(left + wide / 2, 40, what, anchor="middle", classes="s q")
    y = _HEAD + 8.0
    number = 0
    for row in rows:
        height = _height(row)
        if isinstance(row, Note):
            svg.text(4, y + height - _GAP + 2, row.text, classes="q s w")
            svg.line(4, y + height - 6, WIDTH - 4, y + height - 6, "r h")
        elif isinstance(row, Step):
            number += 1
            _step(svg, row, places, y, number)
        else:
            for log in row:
                _log(svg, log, places[log.column], y)
        y += height
    svg.height = end + 4
    return svg


def _places(columns: Sequence[tuple[str, str]]) -> dict[str, float]:
    edge = 62
    step = (WIDTH - 2 * edge) / (len(columns) - 1)
    return {name: edge + step * number for number, (name, _) in enumerate(columns)}


def _height(row: Row) -> float:
    if isinstance(row, Note):
        return _LINE + _GAP + 6
    if isinstance(row, Step):
        lines = row.text.count("\n") + 1
        return lines * _LINE + _GAP
    return 46


def _step(svg: Svg, step: Step, places: dict[str, float], y: float, number: int) -> None:
    lines = [f"{number}  {step.text}"] if "\n" not in step.text else step.text.split("\n")
    if len(lines) > 1:
        lines[0] = f"{number}  {lines[0]}"
    first, last = places[step.source], places[step.to]
    classes = f"t-{step.colour}" if step.colour else ""
    wide = max(_wide(line) for line in lines)
    base = y + len(lines) * _LINE + 4
    if step.source == step.to:
        anchor, x = ("start", first + 12) if first + 12 + wide < WIDTH else ("end", first - 12)
        svg.box(first - 4, y + 4, 8, len(lines) * _LINE, f"f-{step.colour}" if step.colour else "p", round_=2)
    else:
        middle = (first + last) / 2
        x = min(max(middle, wide / 2 + 4), WIDTH - wide / 2 - 4)
        anchor = "middle"
        svg.arrow(first, base, last, base, colour=step.colour, dashed=step.dashed)
    bases = [y + (place + 1) * _LINE - 2 for place in range(len(lines))]
    for at, line in zip(bases, lines, strict=True):  # before all texts: a background would hide an underscore above it
        left = x if anchor == "start" else x - _wide(line) if anchor == "end" else x - _wide(line) / 2
        svg.path(f"M{left - 2:g} {at - 8:g}h{_wide(line) + 4:g}", "bg")
    for at, line in zip(bases, lines, strict=True):
        svg.text(x, at, line, anchor=anchor, classes=classes)


def _wide(line: str) -> float:
    parts = line.split("`")
    return sum(
        width_of(part, size=SMALL, mono=True) if place % 2 else width_of(part, size=TEXT)
        for place, part in enumerate(parts)
    )


def _log(svg: Svg, log: Log, x: float, y: float) -> None:
    cell = 22
    count = log.end - log.first
    left = min(max(4.0, x - cell * count / 2), WIDTH - cell * count - 30)
    for place in range(count):
        offset = log.first + place
        committed = offset < log.high_watermark
        svg.box(left + place * cell, y + 6, cell - 2, 20, "f-c" if committed else "p", round_=2)
        centre = left + place * cell + cell / 2 - 1
        svg.text(centre, y + 20.5, str(offset), anchor="middle", classes="s on" if committed else "s")
    mark = left + (log.high_watermark - log.first) * cell - 1
    svg.line(mark, y + 2, mark, y + 30, "l-c")
    svg.text(mark, y + 42, f"HW {log.high_watermark}", anchor="middle", classes="s t-c")
