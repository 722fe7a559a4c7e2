"""A quorum in virtual time: Kafka's eight scenarios and three of our own, with the invariants of `RaftInvariants`.

``SCENARIOS[name](seed)`` runs one seed again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from tests.support.raft_scenarios import SCENARIOS
from tests.support.simulated import run_seeds

SEEDS = int(os.environ.get("TRIOKAFKA_RAFT_SEEDS", "15"))
LONG_SEEDS = 10_000


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Suppress the log: lost nodes and failed elections are logged thousands of times."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", SCENARIOS)
def test_quorum_keeps_its_invariants(name: str) -> None:
    """Each seed is another schedule."""
    for seed in range(SEEDS):
        try:
            SCENARIOS[name](seed)
        except Exception as error:
            raise AssertionError(f"SCENARIOS[{name!r}]({seed})") from error


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", SCENARIOS)
def test_quorum_keeps_its_invariants_for_long(name: str) -> None:
    """Ten thousand schedules of each kind."""
    run_seeds(name, range(LONG_SEEDS), SCENARIOS[name])
