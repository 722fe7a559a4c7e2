"""Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def code(text: str | None) -> str:
    """Return the text as code; nothing for nothing."""
    return f"`{text}`" if text else ""


def table(head: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: int = 0) -> str:
    """Return a table. The first ``numbers`` columns are aligned to the right."""
    rule = ["--:" if column < numbers else "---" for column in range(len(head))]
    return "\n".join("| " + " | ".join(map(_cell, row)) + " |" for row in [head, rule, *rows])


def _cell(value: object) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")
