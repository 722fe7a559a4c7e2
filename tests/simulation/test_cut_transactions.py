"""Transactions on three simulated nodes whose network is cut in one direction: A hears B, and B does not hear A.

A node is silent or deaf to one other node or to both: the coordinator, the active controller, or any. The bytes arrive
after the network has healed, or they are lost. Every partition, the transaction log included, has three replicas.

Within 30 seconds of healing every transactional id commits. `TransactionHistory` checks every run, no transaction may
hang, and all replicas have the same bytes.
"""

from __future__ import annotations

import functools
import random
from typing import Final

import pytest
import trio

from tests.simulation.test_transaction_zombies import Identity, check_nothing_hangs
from tests.simulation.test_transactions import read_committed
from tests.support.read_back import read_all
from tests.support.simulated import run_seeds
from tests.support.simulated_cluster import SimulatedCluster
from tests.support.transaction_history import TransactionHistory
from triokafka.structs import TopicPartition
from triokafka.testing import Simulation, run_simulation
from triokafka.topic_names import TRANSACTION_STATE_TOPIC

TOPIC: Final = "t"
PARTITIONS: Final = 3
NAMES: Final = ("a", "b", "c")
QUICK_SEEDS: Final = 6
LONG_SEEDS: Final = 500
PROGRESS_SECONDS: Final = 30.0


def _target(cluster: SimulatedCluster, chance: random.Random) -> int:
    """Return the index of the coordinator's node, of the active controller's, or of any."""
    wanted = chance.choice(("coordinator", "controller", "any"))
    for number, node in enumerate(cluster.nodes):
        assert node.node is not None
        state = node.node.broker.metadata.image.partition(TRANSACTION_STATE_TOPIC, 0)
        if wanted == "coordinator" and state is not None and state.leader > 0:
            return state.leader - 1
        if wanted == "controller" and node.node.controller is not None and node.node.controller.is_active:
            return number
    return chance.randrange(len(cluster.nodes))


async def _cut_one_way(cluster: SimulatedCluster, chance: random.Random, count: int) -> None:
    network = cluster.simulation.network
    for _ in range(count):
        await trio.sleep(chance.uniform(0.1, 3.0))
        target = cluster.nodes[_target(cluster, chance)]
        others = [node for node in cluster.nodes if node is not target]
        others = others if chance.random() < 0.6 else [chance.choice(others)]
        silent = chance.random() < 0.5
        fault = network.black_hole if chance.random() < 0.3 else network.partition
        cluster.simulation.record("fault", target.name, silent, len(others))
        for other in others:
            source, destination = (target, other) if silent else (other, target)
            fault(source.name, destination.name, one_way=True)
        await trio.sleep(chance.choice((0.5, 3.0, chance.uniform(0.1, 15.0))))
        network.heal()


async def scenario(simulation: Simulation) -> TransactionHistory:
    """Run and check one schedule. Raises `AssertionError` with the anomalies."""
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    chance = random.Random(f"{simulation.seed}/test")
    cluster = SimulatedCluster(
        simulation,
        transaction_state_log_num_partitions=1,
        transaction_abort_timed_out_transaction_cleanup_interval_ms=1_000,
    )
    cluster.start()
    await cluster.create_topics({TOPIC: PARTITIONS})
    history, over = TransactionHistory(), trio.Event()
    identities = [Identity(cluster, history, name, partitions, over) for name in NAMES]
    simulation.host("reader").start(functools.partial(read_committed, cluster.bootstrap, history, partitions))
    for identity in identities:
        identity.start()
    with trio.fail_after(300):
        await trio.sleep(1)
        await _cut_one_way(cluster, chance, chance.randrange(2, 6))
    over.set()
    with trio.move_on_after(PROGRESS_SECONDS) as scope:
        for identity in identities:
            await identity.done.wait()
    waiting = [identity.name for identity in identities if not identity.done.is_set()]
    assert not scope.cancelled_caught, f"{waiting} did not commit within {PROGRESS_SECONDS:.0f} s of healing"
    for identity in identities:
        await identity.kill_all()
    # The coordinator aborts the open transactions of killed producers.
    await trio.sleep(10)
    await cluster.wait_in_sync({TOPIC: PARTITIONS, TRANSACTION_STATE_TOPIC: 1})
    world = cluster.client_world("auditor")
    await check_nothing_hangs(cluster, partitions, world)
    found = await read_all(cluster.bootstrap, {TOPIC: PARTITIONS}, world=world, isolation_level="read_committed")
    history.check(
        {partition: [value for _, value in entries if value is not None] for partition, entries in found.items()}
    )
    await cluster.wait_replicas_equal({TOPIC: PARTITIONS, TRANSACTION_STATE_TOPIC: 1})
    await cluster.stop()
    return history


def replay(seed: int) -> TransactionHistory:
    """Run the schedule of a seed; raise the same error as the first time."""
    try:
        return run_simulation(scenario, seed)
    except BaseException as error:
        error.add_note(f"run it again with tests.simulation.test_cut_transactions.replay({seed})")
        raise


@pytest.mark.parametrize("seed", range(QUICK_SEEDS))
def test_transactions_are_atomic_despite_cuts_in_one_direction(seed: int) -> None:
    replay(seed)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_transactions_are_atomic_despite_cuts_in_one_direction_in_many_runs() -> None:
    run_seeds("one-way cuts", range(QUICK_SEEDS, LONG_SEEDS), replay)
