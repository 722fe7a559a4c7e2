"""A command's output without the lines that depend on the load of the machine."""

from __future__ import annotations

from typing import IO, AnyStr

_WAITING = "has not responded yet"
"""Printed by every command whose broker needs more than a second for its first response."""


def without_waiting(text: str) -> str:
    """Return ``text`` without the lines about a broker that has not responded yet."""
    return "".join(line for line in text.splitlines(keepends=True) if _WAITING not in line)


def next_line(stream: IO[AnyStr] | None) -> AnyStr:
    """Return the next line of ``stream`` that is not about a broker that has not responded yet."""
    assert stream is not None
    while True:
        line = stream.readline()
        text = line.decode() if isinstance(line, bytes) else str(line)
        if _WAITING not in text:
            return line
