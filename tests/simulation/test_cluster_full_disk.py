"""A node of a cluster whose disk is full for one kind of file, from the first write of that kind on. In virtual time.

Meanwhile the cluster serves clients, creates topics, commits transactions, elects controllers and writes snapshots. The
node's log names the file. Once there is room and the node has been restarted, every acknowledged record is in the log
once and in order, every topic exists, and all replicas have the same bytes.

With two full disks of three, clients may have to wait. Once there is room, the cluster continues without any restart.
"""

from __future__ import annotations

import errno
import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest
import trio

import triokafka
from tests.support.read_back import read_all
from tests.support.simulated import run_seeds
from tests.support.simulated_cluster import SimulatedCluster, SimulatedNode
from triokafka.errors import KafkaError
from triokafka.structs import TopicPartition
from triokafka.testing import Simulation, run_simulation
from triokafka.world.memory import DiskFault

TOPIC = {"orders": 3}
LONG_SEEDS = 40
METADATA = "/data/__cluster_metadata-0"


class Kind(NamedTuple):
    """A kind of file: a pattern of its paths, and the text that names it in the log."""

    pattern: str
    named: str


KINDS = {
    "quorum-state": Kind(f"{METADATA}/quorum-state*", "quorum-state"),
    "metadata log": Kind(f"{METADATA}/*.log", f"{METADATA}/0"),
    "metadata snapshot": Kind(f"{METADATA}/*.checkpoint*", ".checkpoint"),
    "high watermarks": Kind("/data/replication-offset-checkpoint*", "replication-offset-checkpoint"),
    "recovery points": Kind("/data/recovery-point-offset-checkpoint*", "recovery-point-offset-checkpoint"),
    "partition metadata": Kind("/data/*/partition.metadata*", "partition.metadata"),
    "leader epochs": Kind("/data/*/leader-epoch-checkpoint*", "leader-epoch-checkpoint"),
    "partition logs": Kind("/data/orders-*/*.log", "orders-"),
    "new logs": Kind("/data/new-*/*", "new-"),
    "transaction state": Kind("/data/__transaction_state-*/*", "__transaction_state-"),
    "group state": Kind("/data/__consumer_offsets-*/*", "__consumer_offsets-"),
}


TWO_DISKS = {
    "everything": "/data/*",
    "metadata": f"{METADATA}/*",
    "quorum-state": f"{METADATA}/quorum-state*",
    "partition logs": "/data/orders-*/*",
    "internal topics": "/data/__[ct]*/*",
}

QUICK = ("quorum-state", "metadata log", "metadata snapshot", "partition logs", "transaction state")


class Lines(logging.Handler):
    """Stores the log messages at WARNING and above."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


async def attempt(call: Callable[[], Awaitable[object]], within: float = 20.0) -> None:
    """Try an operation that may fail, or take too long, on a cluster that lacks a node."""
    with trio.move_on_after(within):
        try:
            await call()
        except KafkaError:
            pass


class Load:
    """The operations of clients, and their acknowledgements."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.acknowledged: dict[TopicPartition, list[tuple[int, bytes]]] = {}
        self.created: dict[str, int] = dict(TOPIC)

    async def send(self, producer: triokafka.Producer, partition: int, over: trio.Event) -> None:
        """Send records to a partition, each after the acknowledgement of the previous one."""
        known = self.acknowledged.setdefault(TopicPartition("orders", partition), [])
        while not over.is_set():
            value = b"%d-%d" % (partition, len(known))
            metadata = await (await producer.send("orders", value, partition=partition))
            known.append((metadata.offset, value))
            await trio.sleep(0.5)

    async def create(self, name: str) -> None:
        """Create a topic with three replicas."""
        async with self.cluster.admin() as admin:
            await admin.create_topics([triokafka.NewTopic(name, 2, 3)])
        self.created[name] = 2

    async def commit(self, name: str) -> None:
        """Commit a transaction of one record, with the offset of a group."""
        options: dict[str, Any] = {"bootstrap_servers": self.cluster.bootstrap, "world": self.cluster.client_world()}
        async with triokafka.Producer(transactional_id=name, transaction_timeout_ms=10_000, **options) as producer:  # noqa: SIM117
            async with producer.transaction():
                await producer.send("orders-in-transactions", name.encode(), partition=0)
        async with triokafka.Consumer("orders", group_id=name, **options) as consumer:
            await consumer.poll(timeout_ms=2_000)
            await consumer.commit()


async def started(simulation: Simulation, *, bytes_between_snapshots: int) -> SimulatedCluster:
    """Start a cluster with the topics of the test."""
    cluster = SimulatedCluster(
        simulation,
        replica_high_watermark_checkpoint_interval_ms=2_000,
        metadata_log_max_record_bytes_between_snapshots=bytes_between_snapshots,
    )
    cluster.start()
    await cluster.wait_unfenced()
    await cluster.create_topics({**TOPIC, "orders-in-transactions": 1})
    return cluster


def patient_producer(cluster: SimulatedCluster) -> triokafka.Producer:
    """Return a producer that retries for longer than any fault lasts."""
    return triokafka.Producer(
        bootstrap_servers=cluster.bootstrap,
        world=cluster.client_world("producer"),
        linger_ms=0,
        request_timeout_ms=5_000,
        delivery_timeout_ms=600_000,
    )


def leads_quorum(node: SimulatedNode) -> bool:
    """Whether it is the active controller."""
    return node.node is not None and node.node.is_active_controller


async def life(simulation: Simulation, kind: Kind, lines: Lines) -> None:
    chance = simulation.random
    cluster = await started(simulation, bytes_between_snapshots=500)
    load, over = Load(cluster), trio.Event()
    # A node that leads the quorum and stays the leader does not write its election state.
    stores = [node for node in cluster.nodes if kind.named != "quorum-state" or not leads_quorum(node)]
    full = chance.choice(stores)
    async with (
        patient_producer(cluster) as producer,
        trio.open_nursery() as nursery,
    ):
        for partition in range(TOPIC["orders"]):
            nursery.start_soon(load.send, producer, partition, over)
        await trio.sleep(2)
        fault = DiskFault("write", kind.pattern, errno.ENOSPC, partial=chance.choice((0, 7)))
        lines.messages.clear()
        make_room = full.host.disk.inject(fault)
        await attempt(lambda: load.create("new-1"))
        await attempt(lambda: load.commit("first"))
        others = [node for node in cluster.nodes if node is not full]
        other = next(filter(leads_quorum, others), others[0])
        await other.stop()
        await attempt(lambda: load.create("new-2"))
        other.start()
        await trio.sleep(10)
        await attempt(lambda: load.commit("second"))
        if kind.named in ("recovery-point-offset-checkpoint", "leader-epoch-checkpoint"):
            await full.stop()  # flushes all logs
        assert any(kind.named in line for line in lines.messages), lines.messages
        assert sum("cannot process the response" in line for line in lines.messages) < 20, "the log is flooded"
        make_room()
        await restart(full)
        await cluster.wait_in_sync(load.created, within=120.0)
        over.set()
    entries = await read_all(cluster.bootstrap, TOPIC, world=cluster.client_world("auditor"))
    assert entries == load.acknowledged
    await load.commit("third")
    await cluster.wait_replicas_equal(load.created)
    await cluster.stop()


async def restart(node: SimulatedNode) -> None:
    """Start a node again, as its operator does after making room."""
    await node.kill()
    node.start()


def run(kind: str, seed: int) -> None:
    """Run one schedule without printing log lines."""
    lines, logger = Lines(), logging.getLogger("triokafka")
    logger.addHandler(lines)
    try:
        run_simulation(lambda simulation: life(simulation, KINDS[kind], lines), seed)
    finally:
        logger.removeHandler(lines)


@pytest.mark.parametrize("kind", QUICK)
def test_full_disk_of_a_node_loses_no_record_and_is_named(kind: str) -> None:
    run(kind, 1)


async def life_with_two(simulation: Simulation, pattern: str) -> None:
    """Let two disks fill up and have room again, without restarting a node that has stopped working."""
    chance = simulation.random
    cluster = await started(simulation, bytes_between_snapshots=chance.choice((500, 100_000)))
    load, over = Load(cluster), trio.Event()
    await load.commit("before")
    full = chance.sample(cluster.nodes, 2)
    async with (
        patient_producer(cluster) as producer,
        trio.open_nursery() as nursery,
    ):
        for partition in range(TOPIC["orders"]):
            nursery.start_soon(load.send, producer, partition, over)
        await trio.sleep(2)
        rooms = []
        for node in full:
            fault = DiskFault("write", pattern, errno.ENOSPC, partial=chance.choice((0, 7)))
            rooms.append(node.host.disk.inject(fault))
            await trio.sleep(chance.choice((0, 1, 5, 15)))
        await attempt(lambda: load.create("new-1"))
        await attempt(lambda: load.commit("meanwhile"))
        await trio.sleep(chance.choice((1, 10, 40)))
        if chance.random() < 0.4:
            other = next(node for node in cluster.nodes if node not in full)
            await other.kill()
            await trio.sleep(5)
            other.start()
        await trio.sleep(chance.choice((1, 10)))
        for make_room in rooms:
            make_room()
            await trio.sleep(chance.choice((0, 5)))
        await cluster.wait_in_sync(load.created, within=120.0)
        before = {one: len(known) for one, known in load.acknowledged.items()}
        with trio.fail_after(60):
            while any(len(known) == before[one] for one, known in load.acknowledged.items()):
                await trio.sleep(0.5)
        over.set()
    assert await read_all(cluster.bootstrap, TOPIC, world=cluster.client_world("auditor")) == load.acknowledged
    await cluster.retry(lambda: load.create("later"))
    for name in ("before", "after"):
        with trio.fail_after(60):
            await load.commit(name)
    assert not [node.name for node in cluster.nodes if node.running_node.metadata.is_stuck]
    assert not any(broker.fenced for broker in cluster.nodes[0].image.brokers.values())
    await cluster.wait_replicas_equal(load.created)
    await cluster.stop()


def run_with_two(kind: str, seed: int) -> None:
    """Run one schedule with two full disks."""
    run_simulation(lambda simulation: life_with_two(simulation, TWO_DISKS[kind]), seed)


@pytest.mark.parametrize("kind", ["metadata"])
def test_two_full_disks_of_three_lose_no_record_and_need_no_restart(kind: str) -> None:
    run_with_two(kind, 1)


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("kind", TWO_DISKS)
def test_two_full_disks_with_many_seeds(kind: str) -> None:
    run_seeds(f"two full disks, {kind}", range(LONG_SEEDS), functools.partial(run_with_two, kind))


def test_leaderships_move_away_from_a_full_disk() -> None:
    """Every partition soon accepts records again although the disk stays full, and the full node leads none of them."""

    async def main(simulation: Simulation) -> None:
        cluster = SimulatedCluster(simulation)
        cluster.start()
        await cluster.wait_unfenced()
        await cluster.create_topics(TOPIC)
        load, over = Load(cluster), trio.Event()
        full = cluster.nodes[0]
        async with (
            triokafka.Producer(
                bootstrap_servers=cluster.bootstrap,
                world=cluster.client_world("producer"),
                linger_ms=0,
                delivery_timeout_ms=600_000,
            ) as producer,
            trio.open_nursery() as nursery,
        ):
            for partition in range(TOPIC["orders"]):
                nursery.start_soon(load.send, producer, partition, over)
            await trio.sleep(2)
            make_room = full.host.disk.inject(DiskFault("write", "/data/orders-*/*.log", errno.ENOSPC))
            before = {one: len(known) for one, known in load.acknowledged.items()}
            await trio.sleep(3)
            stuck = [one for one, known in load.acknowledged.items() if len(known) == before[one]]
            assert not stuck, f"{stuck} accept no records"
            await trio.sleep(20)
            image = full.image
            assert all(state.leader != full.number for state in image.topics["orders"].partitions.values())
            assert not image.brokers[full.number].fenced
            make_room()
            await cluster.wait_in_sync(TOPIC)
            over.set()
        assert await read_all(cluster.bootstrap, TOPIC, world=cluster.client_world("auditor")) == load.acknowledged
        await cluster.stop()

    run_simulation(main, 1)


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("kind", KINDS)
def test_full_disk_of_a_node_loses_no_record_with_many_seeds(kind: str) -> None:
    run_seeds(f"full disk, {kind}", range(LONG_SEEDS), functools.partial(run, kind))
