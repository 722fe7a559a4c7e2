"""Consumer groups in the simulated world, with a coordinator that dies during joins, syncs and commits.

Members use the classic protocol, eager and cooperative, and the consumer protocol (KIP-848), static and dynamic, as
scripted members or through our own consumer. Every seed chooses where the broker dies, whether its machine loses its
power with it, the faults of the network, and which members freeze, crash and return. In every run each acknowledged
commit survives, no committed offset decreases, no member is stuck, and no partition has two owners in one epoch.

A quick run has some of the seeds, a long one 200 and then ``TRIOKAFKA_LONG_SEEDS`` more from ``TRIOKAFKA_LONG_FIRST``
on, and shows that planted defects are found. ``python -m tests.group_kills SEED`` runs one again.
"""

from __future__ import annotations

import functools
import os

import pytest

import triokafka
from tests.group_kills.defects import DEFECTS, planted
from tests.group_kills.machine import Aim
from tests.group_kills.members import BROKER
from tests.group_kills.scenario import Run, scenario
from tests.support.simulated import run_in_another_process, run_seeds
from triokafka.testing import Simulation, run_simulation

QUICK_SEEDS = 20
SEEDS = 200
SOON = 100
"""Seeds within which a planted defect is found."""


@pytest.mark.parametrize("first", range(0, QUICK_SEEDS, 10))
def test_groups_survive_a_coordinator_that_dies_at_any_point(first: int) -> None:
    for seed in range(first, first + 10):
        run_simulation(scenario, seed)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_groups_survive_two_hundred_coordinators_that_die() -> None:
    run_seeds("group kills", range(SEEDS), functools.partial(run_simulation, scenario))


def test_a_kill_scheduled_for_a_dead_broker_does_not_hit_the_next_one() -> None:
    """The next broker would die after all faults have ended, and would not be restarted."""

    async def run(simulation: Simulation) -> None:
        machine = Run(simulation).machine
        machine.start()
        await machine.ready.wait()
        machine.die()
        machine.aim(Aim("commit_offsets", 1, "arriving"))
        await machine.restart(0)
        await machine.ready.wait()
        async with triokafka.AdminClient(
            world=simulation.host("admin").world, bootstrap_servers="{}:{}".format(*BROKER)
        ) as admin:
            await admin.create_topics([triokafka.NewTopic("t", 1, 1)])
            await admin.alter_group_offsets("g", {triokafka.TopicPartition("t", 0): triokafka.OffsetAndMetadata(3)})
        assert not machine.died.is_set()

    run_simulation(run, 1)


def test_one_seed_gives_the_same_run_in_another_process() -> None:
    assert run_in_another_process(scenario, 7) == run_simulation(scenario, seed=7)


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", DEFECTS)
def test_planted_defect_is_found(name: str) -> None:
    with planted(name) as defect:
        for seed in range(SOON):
            try:
                run_simulation(functools.partial(scenario, mutate=defect), seed)
            except AssertionError as finding:
                print(f"seed {seed}: {str(finding)[:1000]}")
                return
    pytest.fail(f"{name}: not found in {SOON} seeds")


@pytest.mark.long
@pytest.mark.timeout(0)
def test_thousands_of_coordinators_that_die() -> None:
    first = int(os.environ.get("TRIOKAFKA_LONG_FIRST", "1000"))
    count = int(os.environ.get("TRIOKAFKA_LONG_SEEDS", "2000"))
    run_seeds("group kills", range(first, first + count), functools.partial(run_simulation, scenario))
