"""Transactions on three simulated nodes through the schedules against which fencing protects.

Zombies: another producer with the same transactional id starts while the previous one continues. Late appends: a
Produce request is executed long after its transaction was aborted. Late markers: a request for markers is executed
after the coordinator has moved. Lost decisions: the coordinator decides while it is cut off from the other nodes, then
it is killed together with the producers. Each partition has one replica, and every node leads two of them, so that
markers cross the network.

`TransactionHistory` checks every run, and no transaction may hang.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from typing import Final

import pytest
import trio

import triokafka
from tests.simulation.test_transactions import read_committed
from tests.support.read_back import read_all
from tests.support.simulated import run_seeds
from tests.support.simulated_cluster import SimulatedCluster, SimulatedNode
from tests.support.transaction_history import Attempt, TransactionHistory
from triokafka.broker_stub.faults.faults import RequestFault
from triokafka.client.admin import FeatureUpdate, UpgradeType
from triokafka.errors import (
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from triokafka.protocol.api.produce import ProduceRequest
from triokafka.protocol.api.write_txn_markers import WriteTxnMarkersRequest
from triokafka.structs import TopicPartition
from triokafka.testing import SimulatedWorld, Simulation, run_simulation
from triokafka.topic_names import TRANSACTION_STATE_TOPIC

TOPIC: Final = "t"
NAMES: Final = ("a", "b")
QUICK_SEEDS: Final = (*range(8), 16, 59)
"""With these seeds each planted bug of ``tests/support/transaction_mutations.py`` is found."""
LONG_SEEDS: Final = 500
_ALWAYS: Final = ("zombie", "late append", "late markers", "lost decision", "kill", "cut")
KINDS: Final = {1: (*_ALWAYS, *["late markers"] * 4), 2: (*_ALWAYS, *["late append"] * 2, "lost decision")}
"""What happens, by transaction version. Without bumped epochs, the coordinator's is all that stops a late marker."""
COUNTS: Final = {1: 3, 2: 6}
"""Partitions: few, so that a late marker finds records; many, so that a late record finds a partition at rest."""


class Identity:
    """One transactional id, and the processes that use it: the current one and zombies."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        history: TransactionHistory,
        name: str,
        partitions: Sequence[TopicPartition],
        over: trio.Event,
    ) -> None:
        self.name = name
        self._partitions = partitions
        self.done = trio.Event()
        self._cluster = cluster
        self._simulation = cluster.simulation
        self._history = history
        self._over = over
        self._chance = random.Random(f"{cluster.simulation.seed}/{name}")
        self._current = 0
        self._values = 0
        self._left = 2
        """The number of transactions to commit after the faults."""

    @property
    def host(self) -> str:
        """The name of the current process's host."""
        return f"{self.name}-{self._current}"

    def start(self) -> None:
        """Start a process; the previous one becomes a zombie."""
        self._current += 1
        self._simulation.host(self.host).start(functools.partial(self._run, self._current))

    def die(self) -> None:
        """Kill the current process."""
        self._simulation.host(self.host).die()

    async def kill_all(self) -> None:
        """Kill all processes."""
        for number in range(1, self._current + 1):
            await self._simulation.host(f"{self.name}-{number}").kill()

    async def _run(self, number: int, world: SimulatedWorld) -> None:
        while number == self._current and not self.done.is_set():
            producer = triokafka.Producer(
                bootstrap_servers=self._cluster.bootstrap,
                world=world,
                transactional_id=self.name,
                transaction_timeout_ms=6_000,
                request_timeout_ms=3_000,
                delivery_timeout_ms=8_000,
                linger_ms=0,
                retry_backoff_ms=20,
                max_block_ms=20_000,
                close_timeout_ms=1_000,
            )
            try:
                async with producer:
                    # A zombie does not know that it is fenced.
                    while not self.done.is_set():
                        await self._transact(producer, world, number)
            except KafkaError:
                await trio.sleep(0.1)

    async def _transact(self, producer: triokafka.Producer, world: SimulatedWorld, number: int) -> None:
        aborts = self._chance.random() < 0.25
        transaction = producer.transaction()
        await transaction.begin()
        attempt = self._history.begin(self.name)
        try:
            for _ in range(self._chance.randrange(1, 5)):
                await self._send(producer, attempt)
                if self._chance.random() < 0.5:
                    await trio.sleep(self._chance.uniform(0, 0.2))
            if aborts:
                await transaction.abort()
                attempt.committed = False
                return
            attempt.commit_began = world.now()
            await transaction.commit()
            attempt.committed = True
        except TransactionAbortableError:
            attempt.commit_began = None
            await transaction.abort()
            attempt.committed = False
        except TransactionAbortedError:
            attempt.committed = False
        except ProducerFencedError:
            if aborts:
                attempt.committed = False
            raise
        except KafkaTimeoutError:
            await trio.sleep(0.1)
            raise
        if attempt.committed and self._over.is_set() and number == self._current:
            self._left -= 1
            if self._left == 0:
                self.done.set()

    async def _send(self, producer: triokafka.Producer, attempt: Attempt) -> None:
        partition = self._chance.choice(self._partitions)
        self._values += 1
        value = b"%s-%d" % (self.name.encode(), self._values)
        self._history.sent(attempt, value, partition)
        await producer.send(partition.topic, value, partition=partition.partition)


class TransactionFaults:
    """Injects ``count`` faults."""

    def __init__(
        self, cluster: SimulatedCluster, identities: list[Identity], kinds: Sequence[str], chance: random.Random
    ) -> None:
        self._kinds = kinds
        self._cluster = cluster
        self._network = cluster.simulation.network
        self._identities = identities
        self._chance = chance

    async def run(self, count: int) -> None:
        """Inject the faults."""
        for _ in range(count):
            await trio.sleep(self._chance.uniform(0.05, 0.6))
            kind = self._chance.choice(self._kinds)
            self._cluster.simulation.record("fault", kind)
            identity = self._chance.choice(self._identities)
            match kind:
                case "zombie":
                    identity.start()
                case "late append":
                    await self._late_append(identity)
                case "late markers":
                    await self._late_markers()
                case "lost decision":
                    await self._lose_decision()
                case "kill":
                    await self._restart(self._chance.choice(self._cluster.nodes))
                case _:
                    self._network.cut(identity.host)

    async def _late_append(self, identity: Identity) -> None:
        """Execute the next Produce requests late; meanwhile the producer is replaced, sometimes twice."""
        for node in self._running():
            assert node.node is not None
            delay = self._chance.randrange(150, 1_000)
            node.node.broker.faults.arm(RequestFault(api_key=ProduceRequest.api_key, delay_ms=delay))
        await trio.sleep(self._chance.uniform(0.01, 0.2))
        identity.start()

    async def _late_markers(self) -> None:
        """Execute the next requests for markers late; meanwhile the coordinator moves."""
        faults = []
        for node in self._running():
            assert node.node is not None
            delay = self._chance.randrange(300, 1_200)
            faults.append(RequestFault(api_key=WriteTxnMarkersRequest.api_key, delay_ms=delay))
            node.node.broker.faults.arm(faults[-1])
        for _ in range(50):
            if not all(fault.times for fault in faults):
                break
            await trio.sleep(0.01)  # until a request is delayed
        await self._move_coordinator()

    async def _move_coordinator(self) -> None:
        """Make another node the leader of the transaction log, as a controller that balances leaders does."""
        for node in self._running():
            assert node.node is not None
            controller = node.node.controller
            if controller is None or not controller.is_active:
                continue
            state = controller.image.partition(TRANSACTION_STATE_TOPIC, 0)
            others = [] if state is None else [one for one in state.isr if one != state.leader]
            if others:
                try:
                    await controller.hand_over(TRANSACTION_STATE_TOPIC, 0, self._chance.choice(others))
                except KafkaError:
                    return  # the controller has changed
            return

    async def _lose_decision(self) -> None:
        """Cut the coordinator off from replication; kill it and the producers a moment later."""
        leader = self._coordinator()
        if leader is None:
            return
        silent, deaf = self._chance.sample([node for node in self._cluster.nodes if node is not leader], 2)
        self._network.partition(leader.name, silent.name)
        self._network.partition(deaf.name, leader.name, one_way=True)
        await trio.sleep(self._chance.uniform(0.1, 0.4))
        leader.host.die()
        for identity in self._identities:
            identity.die()
        self._network.heal()
        for identity in self._identities:
            identity.start()
        await leader.kill()
        await trio.sleep(self._chance.uniform(0, 4))
        leader.start()
        await self._cluster.wait_in_sync({TRANSACTION_STATE_TOPIC: 1})

    async def _restart(self, node: SimulatedNode) -> None:
        await node.kill()
        await trio.sleep(self._chance.uniform(0, 4))
        node.start()
        await self._cluster.wait_in_sync({TRANSACTION_STATE_TOPIC: 1})

    def _running(self) -> list[SimulatedNode]:
        return [node for node in self._cluster.nodes if node.node is not None]

    def _coordinator(self) -> SimulatedNode | None:
        for node in self._running():
            assert node.node is not None
            state = node.node.broker.metadata.image.partition(TRANSACTION_STATE_TOPIC, 0)
            if state is not None and state.leader > 0:
                return self._cluster.nodes[state.leader - 1]
        return None


async def scenario(simulation: Simulation) -> TransactionHistory:
    """Run and check one schedule. Raises `AssertionError` with the anomalies."""
    level = 2 - simulation.seed % 2
    partitions = [TopicPartition(TOPIC, number) for number in range(COUNTS[level])]
    chance = random.Random(f"{simulation.seed}/test")
    cluster = SimulatedCluster(
        simulation,
        3,
        min_insync_replicas=1,
        transaction_state_log_num_partitions=1,
        transaction_abort_timed_out_transaction_cleanup_interval_ms=1_000,
    )
    cluster.start()
    await cluster.create_topics({"first": 1})  # waits for all nodes
    async with cluster.admin() as admin:
        await cluster.retry(
            lambda: admin.create_topics(
                [triokafka.NewTopic(TOPIC, assignments={n: [n % 3 + 1] for n in range(len(partitions))})]
            )
        )
        if level == 1:
            downgrade = FeatureUpdate(level, UpgradeType.SAFE_DOWNGRADE)
            await cluster.retry(lambda: admin.update_features({"transaction.version": downgrade}))
    history, over = TransactionHistory(), trio.Event()
    identities = [Identity(cluster, history, name, partitions, over) for name in NAMES]
    simulation.host("reader").start(functools.partial(read_committed, cluster.bootstrap, history, partitions))
    for identity in identities:
        identity.start()
    with trio.fail_after(900):
        await trio.sleep(1)
        await TransactionFaults(cluster, identities, KINDS[level], chance).run(chance.randrange(5, 9))
        for node in cluster.nodes:
            if node.node is not None:
                node.node.broker.faults.disarm_all()
        over.set()
        for identity in identities:
            await identity.done.wait()
            await identity.kill_all()
    # The coordinator aborts the open transactions of killed producers.
    await trio.sleep(10)
    world = cluster.client_world("auditor")
    await check_nothing_hangs(cluster, partitions, world)
    found = await read_all(cluster.bootstrap, {TOPIC: len(partitions)}, world=world, isolation_level="read_committed")
    history.check(
        {partition: [value for _, value in entries if value is not None] for partition, entries in found.items()}
    )
    await cluster.stop()
    return history


async def check_nothing_hangs(
    cluster: SimulatedCluster, partitions: Sequence[TopicPartition], world: SimulatedWorld
) -> None:
    """Check that every partition's last stable offset is its end."""
    ends = []
    for level in ("read_committed", "read_uncommitted"):
        async with triokafka.Consumer(
            bootstrap_servers=cluster.bootstrap, world=world, isolation_level=level
        ) as consumer:
            ends.append(await consumer.end_offsets(partitions))
    stable, all_of_them = ends
    assert stable == all_of_them, f"a transaction hangs: last stable offsets {stable} of {all_of_them}"


def replay(seed: int) -> TransactionHistory:
    """Run the schedule of a seed; raise the same error as the first time."""
    try:
        return run_simulation(scenario, seed)
    except BaseException as error:
        error.add_note(f"run it again with tests.simulation.test_transaction_zombies.replay({seed})")
        raise


@pytest.mark.parametrize("seed", QUICK_SEEDS)
def test_transactions_are_atomic_despite_zombies_and_moving_coordinators(seed: int) -> None:
    replay(seed)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_transactions_are_atomic_despite_zombies_in_many_runs() -> None:
    run_seeds("zombies", range(8, LONG_SEEDS), replay)
