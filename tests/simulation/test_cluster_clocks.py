"""Three whole nodes and our clients in the simulated world, with clocks that jump and processes that pause.

Some nodes are also killed, and some nodes and clients are cut off. What must hold: see
`tests.support.cluster_schedule`.
"""

from __future__ import annotations

import random

import pytest
import trio

from tests.support.cluster_schedule import TOPICS, inject_faults, run_schedule
from tests.support.producer_ledger import Ledger
from tests.support.simulated import run_in_another_process, run_seeds
from tests.support.simulated_cluster import SESSION_SECONDS, SimulatedCluster, SimulatedNode
from triokafka.testing import Simulation, run_simulation

SEEDS = 40
SEEDS_A_TEST = 5
LONG_SEEDS = 1_000


async def _inject_faults(cluster: SimulatedCluster, chance: random.Random, count: int) -> None:
    """Inject so many faults. Most concern clocks, pauses or clients; the rest are those of the first kind."""
    for _ in range(count):
        kind = chance.choice(
            ("wall clock", "clocks", "restart", "pause", "pause", "cut off", "client", "other", "other")
        )
        if kind == "other":
            await inject_faults(cluster, chance, 1)
            continue
        await trio.sleep(chance.uniform(0.1, 4.0))
        node = chance.choice(cluster.nodes)
        cluster.simulation.record("fault", kind, node.name)
        if kind == "wall clock":  # forward and back
            node.host.world.wall_skew = chance.choice((-600.0, -40.0, -1.0, 0.0, 1.0, 40.0, 600.0))
        elif kind == "clocks":  # a monotonic clock never goes back
            node.host.world.clock_skew += chance.choice((0.3, 5.0, 40.0, 600.0))
        elif kind == "restart":
            node.host.clock_skew = chance.choice((-40.0, -3.0, 3.0, 600.0))
            await node.kill(power_cut=chance.random() < 0.3)
            cluster.heal()
            await cluster.wait_in_sync(TOPICS, within=120.0)
        elif kind == "pause":
            await _pause(cluster, node, chance)
        elif kind == "cut off":
            cluster.isolate(node, chance, clients=True)
            await trio.sleep(chance.uniform(0.2, 8.0))
            cluster.heal()
        else:
            for other in chance.sample(cluster.nodes, chance.randrange(1, 3)):
                client, one_way = chance.choice(("producer", "reader")), chance.random() < 0.3
                cluster.simulation.network.partition(client, other.name, one_way=one_way)
            await trio.sleep(chance.uniform(0.2, 8.0))
            cluster.heal()


async def _pause(cluster: SimulatedCluster, node: SimulatedNode, chance: random.Random) -> None:
    """Pause a node's process, often for longer than its session, and sometimes kill it or another one meanwhile."""
    world = node.host.world
    world.pause()
    await trio.sleep(chance.uniform(0.2, 4 * SESSION_SECONDS))
    kills = chance.random() < 0.3
    if kills:
        await chance.choice(cluster.nodes).kill()
        await trio.sleep(chance.uniform(0, 2.0))
    world.resume()
    if kills:
        cluster.heal()
        await cluster.wait_in_sync(TOPICS, within=120.0)


async def _schedule(simulation: Simulation) -> tuple[Ledger, int]:
    return await run_schedule(simulation, _inject_faults)


async def digest(simulation: Simulation) -> str:
    """Run one schedule, and return the digest of its trace."""
    await _schedule(simulation)
    return simulation.trace_digest()


def replay(seed: int) -> tuple[Ledger, int]:
    """Run one schedule again; raise the same error as the first time."""
    try:
        return run_simulation(_schedule, seed)
    except BaseException as error:
        error.add_note(f"run it again with tests.simulation.test_cluster_clocks.replay({seed})")
        raise


@pytest.mark.usefixtures("quiet_log")
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
def test_clocks_that_jump_and_processes_that_pause_lose_no_acknowledged_record(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        replay(seed)


@pytest.mark.usefixtures("quiet_log")
def test_a_seed_repeats_its_schedule_also_in_another_process() -> None:
    """The traces have equal digests."""
    assert run_in_another_process(digest, 11) == run_simulation(digest, 11)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_clocks_that_jump_and_processes_that_pause_lose_no_acknowledged_record_in_many_schedules() -> None:
    run_seeds("cluster clocks", range(SEEDS, LONG_SEEDS), replay)
