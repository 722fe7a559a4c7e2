"""Three whole nodes and our clients in the simulated world, through kills, power cuts, partitions and slow networks.

A second kind of schedule adds clocks that jump, processes that pause, and clients that are cut off.

The seed chooses a schedule. Producers send throughout, and a reader reads committed records meanwhile. Afterwards all
faults end: within 30 seconds every partition accepts records again. Then every acknowledged record is in the log once
and in order, the reader's polls agree with the log (see `ReaderHistory`), and all replicas have the same bytes.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import pytest
import trio

import triokafka
from tests.support.producer_ledger import Ledger, Promise
from tests.support.producer_workload import Workload
from tests.support.read_back import read_all
from tests.support.reader_history import ReaderHistory
from tests.support.simulated import run_in_another_process, run_seeds
from tests.support.simulated_cluster import SESSION_SECONDS, SimulatedCluster, SimulatedNode
from triokafka.errors import KafkaError
from triokafka.structs import TopicPartition
from triokafka.testing import Simulation, run_simulation

TOPICS = {"orders": 2, "events": 1}
PROBE = {"probe": 3}
SEEDS = 40
SEEDS_A_TEST = 5
LONG_SEEDS = 4_000
CLOCK_SEEDS = 10
CLOCK_SEEDS_A_TEST = 5
LONG_CLOCK_SEEDS = 1_000
PROGRESS_SECONDS = 30.0

Inject = Callable[[SimulatedCluster, random.Random, int], Awaitable[None]]


async def _inject_faults(cluster: SimulatedCluster, chance: random.Random, count: int) -> None:
    """Inject so many faults. At most one node at a time loses its process or its disk's unsynced data."""
    network = cluster.simulation.network
    for _ in range(count):
        await trio.sleep(chance.uniform(0.1, 4.0))
        node = chance.choice(cluster.nodes)
        kind = chance.choice(("kill", "kill", "power cut", "stop", "isolate", "isolate", "half-open", "cuts", "slow"))
        cluster.simulation.record("fault", kind, node.name)
        if kind in ("kill", "power cut", "stop"):
            if kind == "stop":
                await node.stop()
            else:
                await node.kill(power_cut=kind == "power cut")
            await trio.sleep(chance.choice((0.0, 0.5, chance.uniform(0, 8))))
            cluster.heal()
            # A second disk may lose its unsynced data only after the first has copied what it had lost.
            await cluster.wait_in_sync(TOPICS, within=120.0)
        elif kind == "isolate":
            cluster.isolate(node, chance)
            await trio.sleep(chance.uniform(0.2, 8.0))
            cluster.heal()
        elif kind == "half-open":
            for other in cluster.nodes:
                if other is not node:
                    network.half_open(node.name, other.name, one_way=chance.random() < 0.5)
        elif kind == "cuts":
            network.conditions.cut = 0.02
            await trio.sleep(chance.uniform(0.1, 2.0))
            network.conditions.cut = 0
        else:
            network.conditions.max_delay = chance.choice((0.05, 0.3))
            await trio.sleep(chance.uniform(0.1, 4.0))
            network.conditions.max_delay = 0.002


async def _inject_faults_of_clocks_and_processes(cluster: SimulatedCluster, chance: random.Random, count: int) -> None:
    """Inject so many faults. Most concern clocks, pauses or clients; the rest are those of the first kind."""
    for _ in range(count):
        kind = chance.choice(
            ("wall clock", "clocks", "restart", "pause", "pause", "cut off", "client", "other", "other")
        )
        if kind == "other":
            await _inject_faults(cluster, chance, 1)
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


async def _read_meanwhile(cluster: SimulatedCluster, history: ReaderHistory) -> None:
    """Read committed records until cancelled."""
    partitions = [TopicPartition(name, number) for name, count in TOPICS.items() for number in range(count)]
    async with triokafka.Consumer(
        bootstrap_servers=cluster.bootstrap, world=cluster.client_world("reader"), auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign(partitions)
        while True:
            try:
                polled = await consumer.poll(timeout_ms=500)
            except KafkaError as error:
                if not error.retriable:
                    raise
                continue
            history.polls.append(
                {partition: [(one.offset, one.value) for one in records] for partition, records in polled.items()}
            )


async def _schedule(simulation: Simulation, inject_faults: Inject = _inject_faults) -> tuple[Ledger, int]:
    chance = random.Random(f"{simulation.seed}/test")
    cluster = SimulatedCluster(simulation)
    cluster.start()
    await cluster.create_topics({**TOPICS, **PROBE})
    workload = Workload(chance, TOPICS, records=200, flushes=False)
    over = trio.Event()
    workload.go_on_until(over, pause=0.3)
    producer = triokafka.Producer(
        bootstrap_servers=cluster.bootstrap,
        world=cluster.client_world("producer"),
        batch_size=chance.choice([300, 800]),
        linger_ms=chance.choice([0, 2]),
        request_timeout_ms=5_000,
        retry_backoff_ms=20,
        delivery_timeout_ms=600_000,
        close_timeout_ms=600_000,
        close_stall_timeout_ms=600_000,
    )
    history = ReaderHistory()

    async def inject() -> None:
        await inject_faults(cluster, chance, chance.randrange(2, 7))
        cluster.heal()
        with trio.move_on_after(PROGRESS_SECONDS) as scope:
            await _wait_for_acceptance(cluster)
        assert not scope.cancelled_caught, f"no progress within {PROGRESS_SECONDS:.0f} s of healing"
        over.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(_read_meanwhile, cluster, history)
        await workload.run(producer, during=lambda: nursery.start_soon(inject))
        await cluster.wait_in_sync(TOPICS)
        nursery.cancel_scope.cancel()
    ledger = workload.ledger
    assert not ledger.failed, next(iter(ledger.failed.items()))
    entries = await read_all(cluster.bootstrap, TOPICS, world=cluster.client_world("auditor"))
    repeats = ledger.check(entries, Promise.EXACTLY_ONCE, most_in_batch=100)
    places = {(TopicPartition(one.topic, one.partition), one.offset) for one in ledger.acknowledged.values()}
    history.check(entries, places)
    await cluster.wait_replicas_equal(TOPICS)
    await cluster.stop()
    return ledger, repeats


async def _wait_for_acceptance(cluster: SimulatedCluster) -> None:
    """Send one record to every partition of a topic without readers, and wait for the acknowledgements."""
    async with triokafka.Producer(
        bootstrap_servers=cluster.bootstrap, world=cluster.client_world(), linger_ms=0, delivery_timeout_ms=60_000
    ) as producer:
        deliveries = [
            await producer.send(name, b"probe", partition=number)
            for name, count in PROBE.items()
            for number in range(count)
        ]
        for delivery in deliveries:
            await delivery


async def _schedule_of_clocks(simulation: Simulation) -> tuple[Ledger, int]:
    return await _schedule(simulation, _inject_faults_of_clocks_and_processes)


async def digest_of_clocks(simulation: Simulation) -> str:
    """Run one schedule of the second kind, and return the digest of its trace."""
    await _schedule_of_clocks(simulation)
    return simulation.trace_digest()


def replay(seed: int) -> tuple[Ledger, int]:
    """Run one schedule again; raise the same error as the first time."""
    try:
        return run_simulation(_schedule, seed)
    except BaseException as error:
        error.add_note(f"run it again with tests.simulation.test_cluster_faults.replay({seed})")
        raise


def replay_clocks(seed: int) -> tuple[Ledger, int]:
    """Run one schedule of the second kind again; raise the same error as the first time."""
    try:
        return run_simulation(_schedule_of_clocks, seed)
    except BaseException as error:
        error.add_note(f"run it again with tests.simulation.test_cluster_faults.replay_clocks({seed})")
        raise


@pytest.mark.usefixtures("quiet_log")
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
def test_no_acknowledged_record_is_lost_repeated_or_reordered(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        replay(seed)


@pytest.mark.usefixtures("quiet_log")
@pytest.mark.parametrize("first", range(0, CLOCK_SEEDS, CLOCK_SEEDS_A_TEST))
def test_clocks_that_jump_and_processes_that_pause_lose_no_acknowledged_record(first: int) -> None:
    for seed in range(first, first + CLOCK_SEEDS_A_TEST):
        replay_clocks(seed)


@pytest.mark.usefixtures("quiet_log")
def test_a_seed_repeats_its_schedule_also_in_another_process() -> None:
    """The traces have equal digests."""
    assert run_in_another_process(digest_of_clocks, 11) == run_simulation(digest_of_clocks, 11)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_no_acknowledged_record_is_lost_repeated_or_reordered_in_many_schedules() -> None:
    run_seeds("cluster faults", range(SEEDS, LONG_SEEDS), replay)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_clocks_that_jump_and_processes_that_pause_lose_no_acknowledged_record_in_many_schedules() -> None:
    run_seeds("cluster clocks", range(CLOCK_SEEDS, LONG_CLOCK_SEEDS), replay_clocks)
