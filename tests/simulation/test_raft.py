"""A quorum in virtual time: Kafka's eight scenarios and nine of our own, with the invariants of `RaftInvariants`.

``SCENARIOS[name](seed)`` runs one seed again.
"""

from __future__ import annotations

import os

import pytest

from tests.support.raft_scenarios import KAFKA_SCENARIOS, SCENARIOS
from tests.support.raft_simulation import RaftSimulation
from tests.support.simulated import run_seeds

#: Kafka's scenarios, and the lossy network, run more schedules than the rest of ours.
KAFKA_SEEDS = int(os.environ.get("TRIOKAFKA_RAFT_SEEDS", "500"))
OUR_SEEDS = min(KAFKA_SEEDS, 60)
SEEDS_A_TEST = 100
LONG_SEEDS = 10_000

pytestmark = pytest.mark.usefixtures("quiet_log")


def _seeds(name: str) -> int:
    return KAFKA_SEEDS if name in KAFKA_SCENARIOS or name == "lossy_network" else OUR_SEEDS


@pytest.mark.parametrize(
    ("name", "first"), [(name, first) for name in SCENARIOS for first in range(0, _seeds(name), SEEDS_A_TEST)]
)
def test_quorum_keeps_its_invariants(name: str, first: int) -> None:
    """Each seed is another schedule."""
    for seed in range(first, min(first + SEEDS_A_TEST, _seeds(name))):
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


@pytest.mark.parametrize("seed", range(5))
def test_leader_of_two_voters_removes_itself_and_reports_success(seed: int) -> None:
    """The other voter, which is then the only one, follows until the leader knows that its removal is committed."""
    simulation = RaftSimulation(seed, voters=2, dynamic=True)
    simulation.run_until(simulation.agree, within=60)
    leader = simulation.leader()
    reply = simulation.remove_voter(leader)
    assert reply is not None
    simulation.run_until(lambda: reply.result is not None, within=2)
    assert reply.result is not None and reply.result.error_code == 0
    simulation.run_until(lambda: simulation.agree() and simulation.leader() is not leader, within=5)
