"""Random schedules from a seed: a machine takes one step after another, and its invariants are checked after each.

A step is a name and a number, and all of its random choices come from that number. So a step has the same meaning
whichever earlier steps were left out, and a failing schedule is reduced to the steps that matter. The failure prints
them, with the call of `replay` that runs the same schedule again: paste it into a test or a Python session.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Iterable, Sequence
from typing import ClassVar, TypeAlias, TypeVar

T = TypeVar("T")

Step: TypeAlias = tuple[str, int]

_NUMBER_BITS = 96
_MOST_ATTEMPTS = 3_000
"""The number of runs to reduce one schedule."""


class Draw:
    """The choices of one step, all derived from one number. The number 0 makes the first choice each time."""

    __slots__ = ("_number",)

    def __init__(self, number: int) -> None:
        self._number = number

    def below(self, end: int) -> int:
        """Return a number from 0 to ``end`` - 1."""
        self._number, chosen = divmod(self._number, end)
        return chosen

    def of(self, choices: Sequence[T]) -> T:
        """Return one of these."""
        return choices[self.below(len(choices))]

    def one_in(self, times: int) -> bool:
        """Return True with the probability 1/``times``."""
        return self.below(times) == times - 1

    def some(self, choices: Sequence[T]) -> list[T]:
        """Return some of these, perhaps none, in their order."""
        return [choice for choice in choices if self.below(2)]


class Life:
    """One machine. ``STEPS`` maps the names of its methods that are steps to their relative frequencies."""

    STEPS: ClassVar[dict[str, int]]

    def __init__(self, draw: Draw) -> None:
        raise NotImplementedError

    def check(self) -> None:
        """Check the invariants that hold after every step. Raises `AssertionError`."""

    def finish(self) -> None:
        """Check the invariants that hold at the end, once all faults are over. Raises `AssertionError`."""


def replay(kind: type[Life], first: int, steps: Iterable[Step]) -> Life:
    """Run one schedule: ``first`` determines its initial state. Returns the machine; raises its errors."""
    life = kind(Draw(first))
    life.check()
    for name, number in steps:
        getattr(life, name)(Draw(number))
        life.check()
    life.finish()
    return life


def life_of(kind: type[Life], seed: int, length: int) -> tuple[int, list[Step]]:
    """Return the initial number and the steps of a seed's schedule."""
    chance = random.Random(seed)
    names = chance.choices(list(kind.STEPS), list(kind.STEPS.values()), k=length)
    return chance.getrandbits(_NUMBER_BITS), [(name, chance.getrandbits(_NUMBER_BITS)) for name in names]


def survive(kind: type[Life], seeds: Iterable[int], *, length: int = 60) -> None:
    """Run the schedules of these seeds. The first that fails is reduced, and fails the test."""
    for seed in seeds:
        first, steps = life_of(kind, seed, length)
        try:
            replay(kind, first, steps)
        except Exception as error:
            first, steps = _cut_down(kind, first, steps, _place_of(error))
            lines = "".join(f"    {step!r},\n" for step in steps)
            raise AssertionError(
                f"seed {seed} fails: {error!r}\n\nreplay({kind.__name__}, {first}, [\n{lines}])"
            ) from _failure(kind, first, steps)


def _failure(kind: type[Life], first: int, steps: Sequence[Step]) -> Exception | None:
    try:
        replay(kind, first, steps)
    except Exception as error:
        return error
    return None


def _place_of(error: Exception | None) -> object:
    """Return where an error was raised, so that the reduction does not end up with another error."""
    if error is None:
        return None
    last = traceback.extract_tb(error.__traceback__)[-1]
    return type(error), last.filename, last.lineno


def _cut_down(kind: type[Life], first: int, steps: list[Step], place: object) -> tuple[int, list[Step]]:
    """Leave out steps, then reduce the numbers, as long as the same error is raised."""
    attempts = 0

    def still_fails(first: int, tried: Sequence[Step]) -> bool:
        nonlocal attempts
        attempts += 1
        return attempts <= _MOST_ATTEMPTS and _place_of(_failure(kind, first, tried)) == place

    size = len(steps)
    while size >= 1:
        start = 0
        while start < len(steps):
            shorter = steps[:start] + steps[start + size :]
            if still_fails(first, shorter):
                steps = shorter
            else:
                start += size
        size = size // 2 if size > 1 else 0
    for small in (0, first % 1_000):
        if small < first and still_fails(small, steps):
            first = small
    for index, (name, number) in enumerate(steps):
        for small in (0, *(number % (1 << bits) for bits in range(2, 24, 2))):
            if small < number and still_fails(first, [*steps[:index], (name, small), *steps[index + 1 :]]):
                steps[index] = (name, small)
                break
    return first, steps
