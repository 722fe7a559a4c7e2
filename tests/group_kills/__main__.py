"""Repeat one run: ``python -m tests.group_kills SEED``. Prints all observations, and the problems found in them."""

from __future__ import annotations

import logging
import sys

from tests.group_kills.scenario import Run
from triokafka.testing import Simulation, run_simulation


async def main(simulation: Simulation) -> None:
    run = Run(simulation)
    try:
        await run.run()
    finally:
        print("\n".join(run.history.events))
        print(run.promise.name, run.history.counts())


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO if "-v" in sys.argv else logging.CRITICAL)
    run_simulation(main, int(sys.argv[1]))
