"""Numbers of things in words."""

from __future__ import annotations


def counted(number: int, thing: str) -> str:
    """Return a number with its noun in the singular or plural: "1 record", "2,000 records"."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
