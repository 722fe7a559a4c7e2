"""Parsing of numbers on the command line. Imports no click."""

from __future__ import annotations


def whole_number(text: str, greatest: int) -> int | None:
    """Parse a whole number from 0 to ``greatest`` in plain digits; return None for any other text."""
    digits = text.strip().lstrip("0") or text.strip()[-1:]
    # Limit the digits: int() raises for thousands of them.
    if not (digits.isascii() and digits.isdigit()) or len(digits) > len(str(greatest)):
        return None
    found = int(digits)
    return found if found <= greatest else None
