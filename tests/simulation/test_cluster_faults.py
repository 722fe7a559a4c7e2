"""Three whole nodes and our clients in the simulated world, through kills, power cuts, partitions and slow networks.

What must hold: see `tests.support.cluster_schedule`.
"""

from __future__ import annotations

import pytest

from tests.support.cluster_schedule import run_schedule
from tests.support.producer_ledger import Ledger
from tests.support.simulated import run_seeds
from triokafka.testing import run_simulation

SEEDS = 110
SEEDS_A_TEST = 5
LONG_SEEDS = 4_000


def replay(seed: int) -> tuple[Ledger, int]:
    """Run one schedule again; raise the same error as the first time."""
    try:
        return run_simulation(run_schedule, seed)
    except BaseException as error:
        error.add_note(f"run it again with tests.simulation.test_cluster_faults.replay({seed})")
        raise


@pytest.mark.usefixtures("quiet_log")
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
def test_no_acknowledged_record_is_lost_repeated_or_reordered(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        replay(seed)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_no_acknowledged_record_is_lost_repeated_or_reordered_in_many_schedules() -> None:
    run_seeds("cluster faults", range(SEEDS, LONG_SEEDS), replay)
