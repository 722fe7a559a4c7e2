"""Groups of our consumers through schedules of faults, under the eager, the cooperative and the consumer protocol.

``python -m tests.support.group_faults eager SEED`` runs one again.
"""

from __future__ import annotations

from typing import get_args

import pytest

from tests.support.group_faults import Protocol, faults
from tests.support.simulated import run_seeds
from triokafka.testing import run_simulation

SEEDS = 4
LONG_SEEDS = range(200)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("protocol", get_args(Protocol))
def test_every_record_is_read_and_the_group_settles_after_faults(protocol: Protocol, seed: int) -> None:
    run_simulation(lambda simulation: faults(simulation, protocol), seed)


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("protocol", get_args(Protocol))
def test_two_hundred_schedules_of_faults(protocol: Protocol) -> None:
    run_seeds(
        f"{protocol} protocol through faults",
        LONG_SEEDS,
        lambda seed: run_simulation(lambda simulation: faults(simulation, protocol), seed),
    )
