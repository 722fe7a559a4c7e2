"""The plan of one run, from its seed: the configuration, and steps that can be left out one by one.

A step is a kind and a number; its random choices depend on seed and number, and on the state when it runs. So a run
without some of its steps is valid, too, and a failing run is identified by its seed and the steps that it needs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

STEPS = 60

_WEIGHTS = {
    "append": 26,
    "append_control": 3,
    "append_duplicate": 2,
    "append_with_a_gap": 1,
    "follow": 3,
    "replicate": 5,
    "new_leader": 2,
    "roll": 3,
    "flush": 4,
    "begin_flush": 2,
    "finish_flush": 3,
    "flush_beside_another": 2,
    "flush_over_a_cut": 2,
    "background": 4,
    "checkpoint": 4,
    "checkpoint_high_watermarks": 2,
    "read": 5,
    "look_up_by_time": 4,
    "truncate": 2,
    "start_afresh": 1,
    "delete_records": 3,
    "retain": 4,
    "clean": 4,
    "move": 2,
    "interleave": 3,
    "recreate": 1,
    "fail": 7,
    "close": 2,
    "kill": 3,
    "power_cut": 5,
    "power_cut_within": 6,
}
_KINDS = list(_WEIGHTS)
_TOTALS = [sum(list(_WEIGHTS.values())[: index + 1]) for index in range(len(_KINDS))]


class Step(NamedTuple):
    """``choices`` is the step's own source of randomness, the same each time."""

    kind: str
    seed: str

    def choices(self) -> random.Random:
        return random.Random(self.seed)


def plan(seed: int, count: int = STEPS) -> list[Step]:
    """Return the steps of a run."""
    kinds = random.Random(f"{seed}/kinds").choices(_KINDS, cum_weights=_TOTALS, k=count)
    return [Step(kind, f"{seed}/{number}") for number, kind in enumerate(kinds)]


def shrink(needed: Sequence[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """Return a minimal subset of the steps ``needed`` with which the run still fails."""
    needed_steps = list(needed)
    size = max(1, len(needed_steps) // 2)
    while True:
        index, smaller = 0, False
        while index < len(needed_steps):
            candidate = needed_steps[:index] + needed_steps[index + size :]
            if fails(candidate):
                needed_steps, smaller = candidate, True
            else:
                index += size
        if size == 1 and not smaller:
            return needed_steps
        size = max(1, size // 2)
