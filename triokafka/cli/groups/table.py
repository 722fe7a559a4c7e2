"""Rows as a table that fits the terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import click

NOTHING: Final = "-"
_GAP: Final = 2
_NARROWEST: Final = 12


class Column(NamedTuple):
    """A title; a column that may be cut is, where the terminal is too narrow for all of it."""

    title: str
    may_be_cut: bool = False


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under their titles; None is a hyphen. Only what goes to a terminal is ever cut."""
    terminal = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in table(columns, rows, terminal):
        click.echo(line)


def table(columns: Sequence[Column], rows: Iterable[Sequence[object]], width: int | None = None) -> list[str]:
    """The lines of a table, cut to ``width`` characters as far as its columns may be."""
    cells = [[column.title for column in columns]]
    cells += [[NOTHING if value is None else str(value) for value in row] for row in rows]
    widths = [max(len(row[number]) for row in cells) for number in range(len(columns))]
    if width is not None:
        _narrow(columns, widths, width)
    gap = " " * _GAP
    return [
        gap.join(_fit(text, size).ljust(size) for text, size in zip(row, widths, strict=True)).rstrip() for row in cells
    ]


def _narrow(columns: Sequence[Column], widths: list[int], width: int) -> None:
    """Take what is too much from the widest columns that may be cut, and leave each enough to be recognized by."""
    least = [max(_NARROWEST, len(column.title)) for column in columns]
    cuttable = [number for number, column in enumerate(columns) if column.may_be_cut]
    while sum(widths) + _GAP * (len(widths) - 1) > width:
        wide = [number for number in cuttable if widths[number] > least[number]]
        if not wide:
            return
        widths[max(wide, key=lambda number: widths[number])] -= 1


def _fit(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[: size - 1]}…"
