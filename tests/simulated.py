"""Tests that run in a simulated world of their own: decorate them with ``simulated``."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from triokafka.testing import Simulation, run_simulation

_current: ContextVar[Simulation] = ContextVar("simulation")


def current_simulation() -> Simulation:
    """The simulation that the test runs in."""
    return _current.get()


def simulated(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test on a virtual clock, with a memory network and seeded randomness."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        async def main(simulation: Simulation) -> None:
            _current.set(simulation)
            await test(**fixtures)

        run_simulation(main, seed=1)

    return run
