"""Numbers as they are typed. Nothing here is of click."""

from __future__ import annotations


def whole_number(text: str, greatest: int) -> int | None:
    """The whole number from 0 to ``greatest`` that a text is, in plain digits; None for any other text."""
    digits = text.strip().lstrip("0") or text.strip()[-1:]
    # Not more of them than can be: of thousands of digits int() makes no number.
    if not (digits.isascii() and digits.isdigit()) or len(digits) > len(str(greatest)):
        return None
    found = int(digits)
    return found if found <= greatest else None
