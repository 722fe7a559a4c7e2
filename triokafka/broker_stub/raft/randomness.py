"""The part of a random generator that elections use: `World.random` has it."""

from __future__ import annotations

from typing import Protocol


class Randomness(Protocol):
    """A source of random numbers."""

    def uniform(self, a: float, b: float) -> float:
        """Return a number between ``a`` and ``b``."""
        ...

    def randrange(self, start: int) -> int:
        """Return a number from 0 to ``start`` - 1."""
        ...
