"""Work that is done in steps, with others having their turn in between, where there are no others."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def done(steps: Generator[object, None, T]) -> T:
    """Do all steps, and return what they lead to."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
