"""Rows of the hostile runs' table: a figure, and the limit that it must keep."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One measured figure or outcome.

    Args:
        section: the section's name, such as ``memory``.
        case: what was done, such as ``ten malformed 100 MB Produce frames``.
        figure: the result as text, with its unit.
        limit: what must hold, as text; empty for a figure without a limit.
        met: whether the limit was kept.
    """

    section: str
    case: str
    figure: str
    limit: str = ""
    met: bool = True


def render(rows: Iterable[Row]) -> str:
    """Return the rows as an aligned table, with ``NOT MET`` at the end of each row whose limit was not kept."""
    head = ("section", "case", "figure", "limit", "")
    cells = [head, *((row.section, row.case, row.figure, row.limit, "" if row.met else "NOT MET") for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )
