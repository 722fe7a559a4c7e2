"""Consumer groups in the simulated world, over a coordinator that dies in the middle of joins, syncs and commits.

Members speak the classic protocol, eager and cooperative, and the new one (KIP-848), static and dynamic, by themselves
or through our own consumer. Every seed draws where the broker dies, whether its machine loses its power with it, what
the network does, and which members freeze, die and come back. Whatever it draws: every acknowledged commit is there, no
position moves back, no member is stuck, no partition has two owners in one epoch.

A quick run has some of the seeds, a long one 200 and then ``TRIOKAFKA_LONG_SEEDS`` more from ``TRIOKAFKA_LONG_FIRST``
on, and shows that planted defects are found. ``python -m tests.group_kills SEED`` runs one again.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys

import pytest

import triokafka
from tests.group_kills.defects import DEFECTS, planted
from tests.group_kills.machine import Aim
from tests.group_kills.members import BROKER
from tests.group_kills.scenario import Run, scenario
from tests.support.simulated import run_seeds
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


def test_an_aim_that_was_taken_at_a_dead_broker_is_not_the_next_ones() -> None:
    """It would die of it when all trouble is over, and nobody would start it again."""

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
    program = (
        "from tests.group_kills.scenario import scenario\n"
        "from triokafka.testing import run_simulation\n"
        "print(run_simulation(scenario, seed=7))\n"
    )
    elsewhere = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert elsewhere.stdout.strip() == run_simulation(scenario, seed=7)


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
