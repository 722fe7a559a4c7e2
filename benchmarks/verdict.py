"""A target of a benchmark, and its measured value."""

from __future__ import annotations

from typing import NamedTuple


class Verdict(NamedTuple):
    """A target, and the measured figure."""

    aim: str
    target: float
    found: float
    met: bool


def at_least(aim: str, target: float, found: float) -> Verdict:
    """Return the verdict on a figure that must reach the target."""
    return Verdict(aim, target, found, found >= target)


def at_most(aim: str, target: float, found: float) -> Verdict:
    """Return the verdict on a figure that must not exceed the target."""
    return Verdict(aim, target, found, found <= target)
