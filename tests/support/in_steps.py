"""Run a stepwise operation to its end, for callers that have no other tasks to yield to."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def done(steps: Generator[object, None, T]) -> T:
    """Run all steps, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
