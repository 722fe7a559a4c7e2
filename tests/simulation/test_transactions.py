"""Transactions of our producer on our broker in the simulated world: kills of both, cuts, lost responses, zombies.

`TransactionHistory` checks every run: no reader with ``read_committed`` receives an aborted, early, torn, repeated or
reordered transaction, and no committed one is lost.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from typing import Any

import pytest
import trio

import triokafka
from tests.simulation.test_producer_broker_faults import BOOTSTRAP, BrokerMachine
from tests.support.read_back import read_all
from tests.support.simulated import run_seeds
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
from triokafka.protocol.api.end_txn import EndTxnRequest
from triokafka.structs import TopicPartition
from triokafka.testing import SimulatedWorld, Simulation, run_simulation

TOPICS = {"left": 2, "right": 1}
PARTITIONS = [TopicPartition(name, number) for name, count in TOPICS.items() for number in range(count)]
QUICK_SEEDS = 120
LONG_SEEDS = 2_000
_HOW: tuple[dict[str, Any], ...] = (
    {"close": "before"},
    {"close": "after"},
    {"lose_answer": True},
    {"answer_delay_ms": 500},
)
_TRANSACTIONAL_KEYS = (0, 10, 22, 24, 25, 26, 28)


class Writer:
    """One transactional id, on a host whose process is killed and started again."""

    def __init__(self, simulation: Simulation, history: TransactionHistory, name: str, count: int) -> None:
        self.name = name
        self.host = simulation.host(name)
        self.done = trio.Event()
        self._history = history
        self._chance = random.Random(f"{simulation.seed}/{name}")
        self._left = count
        self._values = 0

    def start(self) -> None:
        self.host.start(self._run)

    async def _run(self, world: SimulatedWorld) -> None:
        while self._left:
            producer = triokafka.Producer(
                bootstrap_servers=BOOTSTRAP,
                world=world,
                transactional_id=self.name,
                transaction_timeout_ms=10_000,
                request_timeout_ms=2_000,
                delivery_timeout_ms=6_000,
                linger_ms=self._chance.choice([0, 2]),
                batch_size=self._chance.choice([100, 2_000]),
                retry_backoff_ms=20,
                max_block_ms=20_000,
                close_timeout_ms=5_000,
            )
            try:
                async with producer:
                    while self._left:
                        await self._transact(producer, world)
            except KafkaError:
                await trio.sleep(0.2)  # the producer has failed: another one continues
        self.done.set()

    async def _transact(self, producer: triokafka.Producer, world: SimulatedWorld) -> None:
        history, chance = self._history, self._chance
        aborts = chance.random() < 0.25
        transaction = producer.transaction()
        await transaction.begin()
        attempt = history.begin(self.name)
        try:
            for _ in range(chance.randrange(1, 8)):
                await self._send(producer, attempt)
            if chance.random() < 0.3:
                await producer.flush()
            if aborts:
                await transaction.abort()
                attempt.committed = False
                return
            attempt.commit_began = world.now()
            await transaction.commit()
            attempt.committed = True
            self._left -= 1
        except TransactionAbortableError:
            attempt.commit_began = None
            await transaction.abort()
            attempt.committed = False
        except TransactionAbortedError:
            attempt.committed = False
        except KafkaTimeoutError:
            # Unknown, unless the start of the next transaction reveals it.
            await trio.sleep(0.1)
            raise
        except ProducerFencedError:
            if aborts:
                attempt.committed = False  # the producer that fenced it has aborted it
            raise

    async def _send(self, producer: triokafka.Producer, attempt: Attempt) -> None:
        partition = self._chance.choice(PARTITIONS)
        self._values += 1
        value = b"%s-%d" % (self.name.encode(), self._values)
        self._history.sent(attempt, value, partition)
        await producer.send(partition.topic, value, partition=partition.partition)


async def read_committed(
    bootstrap: str, history: TransactionHistory, partitions: Sequence[TopicPartition], world: SimulatedWorld
) -> None:
    """Record committed records until cancelled."""
    async with triokafka.Consumer(
        bootstrap_servers=bootstrap,
        world=world,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        request_timeout_ms=2_000,
    ) as consumer:
        consumer.assign(partitions)
        while True:
            for records in (await consumer.poll(timeout_ms=200)).values():
                for record in records:
                    assert record.value is not None
                    history.saw(record.value, world.now())


async def _inject_faults(
    simulation: Simulation, machine: BrokerMachine, writers: list[Writer], chance: random.Random, count: int
) -> None:
    conditions = simulation.network.conditions
    conditions.cut = chance.choice([0, 0, 0.003])
    conditions.max_delay = chance.choice([0.001, 0.02])
    for _ in range(count):
        await trio.sleep(chance.uniform(0, 0.4))
        draw = chance.random()
        if draw < 0.15:
            await machine.restart(chance.uniform(0, 0.5), cleanly=chance.random() < 0.5)
        elif draw < 0.4:
            writer = chance.choice(writers)
            if not writer.done.is_set():
                await writer.host.kill()
                writer.start()
        elif draw < 0.5:
            simulation.network.cut(chance.choice(writers).name)
        elif machine.broker is not None:
            machine.broker.faults.arm(
                RequestFault(
                    api_key=chance.choice(_TRANSACTIONAL_KEYS),
                    times=chance.choice([1, 2]),
                    **chance.choice(_HOW),
                )
            )
    conditions.cut = 0
    if machine.broker is not None:
        machine.broker.faults.disarm_all()


async def scenario(simulation: Simulation, *, transactions: int = 8) -> TransactionHistory:
    """Run and check one schedule. Raises `AssertionError` with the anomalies."""
    chance = random.Random(f"{simulation.seed}/test")
    machine = BrokerMachine(simulation)
    machine.start()
    history = TransactionHistory()
    async with triokafka.AdminClient(world=simulation.host("admin").world, bootstrap_servers=BOOTSTRAP) as admin:
        await admin.create_topics([triokafka.NewTopic(name, count, 1) for name, count in TOPICS.items()])
    writers = [Writer(simulation, history, f"writer-{number}", transactions) for number in range(2)]
    simulation.host("reader").start(functools.partial(read_committed, BOOTSTRAP, history, PARTITIONS))
    for writer in writers:
        writer.start()
    with trio.fail_after(600):
        await _inject_faults(simulation, machine, writers, chance, chance.randrange(4, 20))
        for writer in writers:
            await writer.done.wait()
    with trio.fail_after(40):
        await _ended(simulation)
    entries = await read_all(
        BOOTSTRAP, TOPICS, world=simulation.host("auditor").world, isolation_level="read_committed"
    )
    final: dict[TopicPartition, list[bytes]] = {
        partition: [value for _, value in found if value is not None] for partition, found in entries.items()
    }
    history.check(final)
    assert sum(attempt.committed is True for attempt in history.attempts) == 2 * transactions
    return history


async def _ended(simulation: Simulation) -> None:
    """Wait until the coordinator has ended what killed writers left open, so that a reader reaches the end."""
    unfinished = ("Ongoing", "PrepareCommit", "PrepareAbort")
    async with triokafka.AdminClient(world=simulation.host("judge").world, bootstrap_servers=BOOTSTRAP) as admin:
        while any((await admin.list_transactions(states=unfinished)).values()):
            await trio.sleep(1)


@pytest.mark.parametrize("first", range(0, QUICK_SEEDS, 10))
def test_transactions_are_atomic_despite_kills_and_cuts(first: int) -> None:
    for seed in range(first, first + 10):
        run_simulation(scenario, seed)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_transactions_are_atomic_in_thousands_of_runs() -> None:
    run_seeds("transactions", range(1_000, 1_000 + LONG_SEEDS), functools.partial(run_simulation, scenario))


# ---------------------------------------------------------------- a late EndTxn


async def _late_end(simulation: Simulation, version: int) -> TransactionHistory:
    """The broker handles the first EndTxn long after its repetition, while the next transaction is open."""
    machine = BrokerMachine(simulation)
    machine.start()
    history = TransactionHistory()
    world = simulation.host("writer").world
    async with triokafka.AdminClient(world=world, bootstrap_servers=BOOTSTRAP) as admin:
        await admin.create_topics([triokafka.NewTopic(name, count, 1) for name, count in TOPICS.items()])
        if version < 2:
            downgrade = FeatureUpdate(version, UpgradeType.SAFE_DOWNGRADE)
            await admin.update_features({"transaction.version": downgrade})
    assert machine.broker is not None
    async with triokafka.Producer(
        bootstrap_servers=BOOTSTRAP, world=world, transactional_id="writer", request_timeout_ms=1_000
    ) as producer:
        machine.broker.faults.arm(RequestFault(api_key=EndTxnRequest.api_key, delay_ms=3_000))
        began = world.now()
        for values, commits in (((b"a",), True), ((b"b", b"c"), False)):
            attempt = history.begin("writer")
            transaction = producer.transaction()
            await transaction.begin()
            for value, partition in zip(values, PARTITIONS[1:], strict=False):
                history.sent(attempt, value, partition)
                await producer.send(partition.topic, value, partition=partition.partition)
                await producer.flush()
                if not commits and value == b"b":
                    assert world.now() - began < 2.5, "the repetition has had its response"
                    await trio.sleep(3)
            if commits:
                attempt.commit_began = world.now()
                await transaction.commit()
            else:
                await transaction.abort()
            attempt.committed = commits
    found = await read_all(BOOTSTRAP, TOPICS, world=world, isolation_level="read_committed")
    history.check(
        {partition: [value for _, value in entries if value is not None] for partition, entries in found.items()}
    )
    return history


def test_late_end_does_not_affect_the_next_transaction_under_version_2() -> None:
    run_simulation(functools.partial(_late_end, version=2), 1)


def test_late_end_commits_half_of_an_aborted_transaction_under_version_1() -> None:
    """The flaw of the older protocol that KIP-890 fixes, in Apache Kafka as here: both EndTxn requests have the same
    epoch.
    """
    with pytest.raises(AssertionError, match="aborted read: b'b' of transaction 1"):
        run_simulation(functools.partial(_late_end, version=1), 1)


# ---------------------------------------------------------------- the checker

LEFT = TopicPartition("left", 0)


def _history(**outcome: Any) -> TransactionHistory:
    history = TransactionHistory()
    attempt = history.begin("w")
    for value in (b"a", b"b"):
        history.sent(attempt, value, LEFT)
    for name, value in outcome.items():
        setattr(attempt, name, value)
    return history


@pytest.mark.parametrize(
    ("outcome", "final", "anomaly"),
    [
        ({"committed": False}, [b"a"], "aborted read"),
        ({"committed": True}, [b"a"], "lost write"),
        ({"committed": True}, [b"a", b"b", b"a"], "duplicate"),
        ({"committed": True}, [b"b", b"a"], "disorder"),
        ({"committed": None, "commit_began": 5.0}, [b"a"], "torn transaction"),
        ({"committed": None}, [b"a", b"b"], "precommitted read"),
        ({"committed": True}, [b"a", b"b", b"c"], "phantom"),
    ],
)
def test_history_checker_finds_each_anomaly(outcome: dict[str, Any], final: list[bytes], anomaly: str) -> None:
    with pytest.raises(AssertionError, match=anomaly):
        _history(**outcome).check({LEFT: final})


def test_history_checker_finds_reads_before_the_commit() -> None:
    history = _history(committed=True, commit_began=5.0)
    history.saw(b"a", 4.9)
    with pytest.raises(AssertionError, match="precommitted read"):
        history.check({LEFT: [b"a", b"b"]})


def test_history_check_accepts_correct_transactions() -> None:
    history = _history(committed=True, commit_began=5.0)
    history.saw(b"a", 5.1)
    history.check({LEFT: [b"a", b"b"]})
    _history(committed=None).check({LEFT: []})
    _history(committed=None, commit_began=5.0).check({LEFT: [b"a", b"b"]})
