"""Tables that fit the terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import click

NOTHING: Final = "-"
_GAP: Final = 2
_NARROW: Final = 12
_NARROWEST: Final = 8


class Column(NamedTuple):
    """A column: its title, and whether its cells may be cut on a narrow terminal."""

    title: str
    may_be_cut: bool = False


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under their titles; None is a hyphen. Cells are cut only on a terminal."""
    terminal = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in table(columns, rows, terminal):
        click.echo(line)


def table(columns: Sequence[Column], rows: Iterable[Sequence[object]], width: int | None = None) -> list[str]:
    """Return the lines of a table that fits ``width`` characters.

    First it cuts columns that may be cut, then breaks titles, and finally prints each row as a block of lines.
    """
    cells = [[NOTHING if value is None else str(value) for value in row] for row in rows]
    titles = [[column.title] for column in columns]
    widths = _widths(titles, cells)
    if width is None or _narrow(columns, titles, widths, width, _GAP, _NARROW):
        return _lines(titles, cells, widths, _GAP)
    titles = [_broken(column.title) for column in columns]
    widths = _widths(titles, cells)
    if _narrow(columns, titles, widths, width, 1, _NARROWEST) or not cells:
        return _lines(titles, cells, widths, 1)
    return _blocks(columns, cells)


def _widths(titles: list[list[str]], cells: list[list[str]]) -> list[int]:
    return [max(len(text) for text in (*title, *(row[number] for row in cells))) for number, title in enumerate(titles)]


def _narrow(
    columns: Sequence[Column], titles: list[list[str]], widths: list[int], width: int, gap: int, least: int
) -> bool:
    """Shrink the widest columns that may be cut, down to a recognizable minimum. Return whether the table fits."""
    leasts = [max(least, *map(len, title)) for title in titles]
    cuttable = [number for number, column in enumerate(columns) if column.may_be_cut]
    while sum(widths) + gap * (len(widths) - 1) > width:
        wide = [number for number in cuttable if widths[number] > leasts[number]]
        if not wide:
            return False
        widths[max(wide, key=lambda number: widths[number])] -= 1
    return True


def _broken(title: str) -> list[str]:
    """Break a title such as ``LOG-END-OFFSET`` into two lines."""
    begin, hyphen, end = title.rpartition("-")
    return [begin + hyphen, end] if hyphen else [title]


def _lines(titles: list[list[str]], cells: list[list[str]], widths: list[int], gap: int) -> list[str]:
    height = max(map(len, titles))
    heads = [[title[line] if line < len(title) else "" for title in titles] for line in range(height)]
    return [
        (" " * gap).join(_fit(text, size).ljust(size) for text, size in zip(row, widths, strict=True)).rstrip()
        for row in [*heads, *cells]
    ]


def _blocks(columns: Sequence[Column], cells: list[list[str]]) -> list[str]:
    indent = max(len(column.title) for column in columns) + 1
    lines: list[str] = []
    for row in cells:
        lines += [""] if lines else []
        lines += [f"{column.title.ljust(indent)}{text}" for column, text in zip(columns, row, strict=True)]
    return lines


def _fit(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[: size - 1]}…"
