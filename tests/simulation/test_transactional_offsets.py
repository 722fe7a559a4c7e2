"""Offsets in transactions while a coordinator is killed or stopped at each step: every call ends.

The node that gets a request is killed when the request is sent, while it is executed, or when its response has arrived.
It comes back at once, later, or after the caller's timeout. Every call of the producer returns, or raises an error that
names the awaited coordinator or group, within its documented time. Afterwards either both the records and the offsets
of a transaction are committed, or neither.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
import trio

import triokafka
from tests.support.read_back import read_all
from tests.support.simulated import run_seeds
from tests.support.simulated_cluster import SimulatedCluster
from triokafka.client.admin import FeatureUpdate, UpgradeType
from triokafka.errors import (
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
    RequestTimedOutError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from triokafka.structs import Node, TopicPartition
from triokafka.testing import Simulation, run_simulation

GROUP = "copiers"
INPUT = TopicPartition("input", 0)
TOPICS = {"input": 1, "output": 2}
TRANSACTIONS = 5
QUICK_SEEDS = 20
MAX_BLOCK = 6.0
REQUEST_TIMEOUT = 2.0
DELIVERY_TIMEOUT = 8.0
SLACK = 1.0
OF_VERSION_1 = ("AddPartitionsToTxn", "AddOffsetsToTxn")
STEPS = ("InitProducerId", *OF_VERSION_1, "FindCoordinator", "Produce", "TxnOffsetCommit", "EndTxn")
MOMENTS: tuple[float | None, ...] = (0.0, 0.0015, 0.004, None)
"""Seconds between the request and the kill; None: at the answer."""
ONE_REPLICA: Mapping[str, Any] = {
    "default_replication_factor": 1,
    "min_insync_replicas": 1,
    "offsets_topic_replication_factor": 1,
    "transaction_state_log_replication_factor": 1,
    "transaction_state_log_min_isr": 1,
}


class Killer(triokafka.Hooks):
    """Ends the node that gets, or has responded to, the ``number``-th request of an API, and starts it again later."""

    def __init__(
        self, cluster: SimulatedCluster, api: str, number: int, after: float | None, away: float, *, cleanly: bool
    ) -> None:
        self._cluster = cluster
        self._api = api
        self._left = number
        self._after = after
        self._away = away
        self._cleanly = cleanly
        self.struck = False
        self.over = trio.Event()
        self.unanswered: list[str] = []
        """Requests that got no answer although the nodes ran."""
        self._returned = 0.0

    def on_request(self, node: Node, api: str, version: int, size: int) -> None:
        """See `Hooks`."""
        if self._after is not None:
            self._count(node, api, self._after)

    def on_response(self, node: Node, api: str, size: int, seconds: float, error: Exception | None) -> None:
        """See `Hooks`."""
        if isinstance(error, RequestTimedOutError) and trio.current_time() - seconds > self._returned:
            self.unanswered.append(f"{api}: {error}")
        if self._after is None and error is None:
            self._count(node, api, 0.0)

    def _count(self, node: Node, api: str, after: float) -> None:
        if api != self._api or self.struck:
            return
        self._left -= 1
        if self._left == 0:
            self.struck = True
            self._returned = float("inf")
            self._cluster.simulation.nursery.start_soon(self._strike, node.host, after)

    async def _strike(self, name: str, after: float) -> None:
        node = next(one for one in self._cluster.nodes if one.name == name)
        await trio.sleep(after)
        if self._cleanly:
            await node.stop()
        else:
            await node.kill()
        await trio.sleep(self._away)
        node.start()
        self._returned = trio.current_time()
        self.over.set()


class Outcomes:
    """The known outcomes of the transactions: each sends the values and the offset of its number."""

    def __init__(self) -> None:
        self.committed: set[int] = set()
        self.unknown: set[int] = set()
        self.calls: dict[str, float] = {}

    async def timed(self, name: str, limit: float, call: Callable[[], Awaitable[object]]) -> None:
        """Make one call; fail if it takes longer than ``limit`` seconds, or raises a timeout without a reason."""
        began = trio.current_time()
        try:
            with trio.fail_after(limit + SLACK):
                await call()
        except trio.TooSlowError:
            raise AssertionError(f"{name} did not end within {limit:.0f} s") from None
        except KafkaTimeoutError as error:
            assert len(str(error)) > 20, f"{name} timed out without naming the awaited object: {error!r}"
            raise
        finally:
            self.calls[name] = max(self.calls.get(name, 0.0), trio.current_time() - began)


async def _transact(
    producer: triokafka.Producer, outcomes: Outcomes, number: int, patience: float = float("inf")
) -> None:
    transaction = producer.transaction()
    # A previous transaction may be unfinished: its end may need a new producer id.
    await outcomes.timed("begin", MAX_BLOCK, transaction.begin)
    try:
        for partition in range(2):
            await outcomes.timed(
                "send", MAX_BLOCK, functools.partial(producer.send, "output", b"%d" % number, partition=partition)
            )
        offsets = functools.partial(transaction.send_offsets, offsets={INPUT: number}, group=GROUP)
        with trio.move_on_after(patience):
            await outcomes.timed("send_offsets", MAX_BLOCK, offsets)
        outcomes.unknown.add(number)
        await outcomes.timed("commit", DELIVERY_TIMEOUT + MAX_BLOCK, transaction.commit)
    except TransactionAbortedError:
        outcomes.unknown.discard(number)
        raise
    except (TransactionAbortableError, KafkaTimeoutError) as error:
        if isinstance(error, KafkaTimeoutError) and number in outcomes.unknown:
            raise  # the commit may have been sent
        outcomes.unknown.discard(number)
        await outcomes.timed("abort", REQUEST_TIMEOUT + MAX_BLOCK, transaction.abort)
        raise
    outcomes.unknown.discard(number)
    outcomes.committed.add(number)


async def _produce(cluster: SimulatedCluster, killer: Killer, outcomes: Outcomes, patience: float) -> None:
    number = 0
    while number < TRANSACTIONS:
        producer = triokafka.Producer(
            bootstrap_servers=cluster.bootstrap,
            world=cluster.client_world(),
            transactional_id="copier",
            request_timeout_ms=int(REQUEST_TIMEOUT * 1000),
            delivery_timeout_ms=int(DELIVERY_TIMEOUT * 1000),
            max_block_ms=int(MAX_BLOCK * 1000),
            close_timeout_ms=3_000,
            linger_ms=0,
            retry_backoff_ms=20,
            hooks=(killer,),
        )
        try:
            async with producer:
                while number < TRANSACTIONS:
                    number += 1
                    try:
                        await _transact(producer, outcomes, number, patience)
                    except (TransactionAbortedError, TransactionAbortableError):
                        continue
        except ProducerFencedError as error:
            raise AssertionError("no other producer fences this one") from error
        except KafkaError:
            await trio.sleep(0.2)


async def scenario(
    simulation: Simulation,
    *,
    level: int,
    nodes: int,
    api: str,
    after: float | None,
    away: float,
    number: int,
    cleanly: bool = False,
    patience: float = float("inf"),
) -> Outcomes:
    """Run and check one schedule."""
    cluster = SimulatedCluster(simulation, nodes, **(ONE_REPLICA if nodes == 1 else {}))
    cluster.start()
    async with cluster.admin() as admin:
        topics = [triokafka.NewTopic(name, count, nodes) for name, count in TOPICS.items()]
        await cluster.retry(lambda: admin.create_topics(topics))
        if level < 2:
            downgrade = FeatureUpdate(level, UpgradeType.SAFE_DOWNGRADE)
            await admin.update_features({"transaction.version": downgrade})
    killer = Killer(cluster, api, number, after, away, cleanly=cleanly)
    outcomes = Outcomes()
    with trio.fail_after(300):
        await _produce(cluster, killer, outcomes, patience)
    if killer.struck:
        await killer.over.wait()
    world = cluster.client_world("auditor")
    found = await read_all(cluster.bootstrap, TOPICS, world=world, isolation_level="read_committed")
    values = [[int(value) for _, value in found[TopicPartition("output", p)] if value is not None] for p in range(2)]
    assert values[0] == values[1], f"a transaction is torn: {values}"
    there = set(values[0])
    assert len(there) == len(values[0]) and values[0] == sorted(values[0]), f"repeated or out of order: {values}"
    assert outcomes.committed <= there <= outcomes.committed | outcomes.unknown, (values, vars(outcomes))
    async with triokafka.Consumer(
        bootstrap_servers=cluster.bootstrap, world=world, group_id=GROUP, enable_auto_commit=False
    ) as consumer:
        position = await consumer.committed(INPUT)
        assert (0 if position is None else position.offset) == max(there, default=0), (position, values)
    await cluster.stop()
    # A node of a cluster waits for the replicas for longer than this client does.
    assert nodes > 1 or not killer.unanswered, killer.unanswered
    assert killer.struck or (level == 2 and api in OF_VERSION_1), f"there was no {api} number {number}"
    return outcomes


def replay(seed: int, *, nodes: int = 1) -> Outcomes:
    """Run the schedule of a seed; raise the same error as the first time."""
    chance = random.Random(f"{seed}/offsets")
    level = chance.choice([1, 2])
    api = chance.choice([step for step in STEPS if level == 1 or step not in OF_VERSION_1])
    given: dict[str, Any] = {
        "level": level,
        "nodes": nodes,
        "api": api,
        "number": {"InitProducerId": 1, "FindCoordinator": chance.choice([1, 2])}.get(api, chance.choice([1, 3])),
        "after": chance.choice(MOMENTS),
        "away": chance.choice([0.0, 1.5, 9.0, 60.0] if nodes == 1 else [0.0, 2.0, 9.0]),
        "cleanly": chance.random() < 0.3,
        "patience": 0.0005 if chance.random() < 0.3 else float("inf"),
    }
    try:
        return run_simulation(functools.partial(scenario, **given), seed)
    except BaseException as error:
        error.add_note(f"run it again with tests.simulation.test_transactional_offsets.replay({seed}, nodes={nodes})")
        error.add_note(f"it is {given}")
        raise


@pytest.mark.parametrize("first", range(0, QUICK_SEEDS, 10))
def test_every_call_ends_although_the_broker_ends_at_any_step(first: int) -> None:
    for seed in range(first, first + 10):
        replay(seed)


def test_every_call_ends_although_a_coordinator_moves() -> None:
    for seed in range(2):
        replay(seed, nodes=3)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_every_call_ends_in_many_schedules() -> None:
    run_seeds("transactional offsets", range(QUICK_SEEDS, 2_000), replay)
    run_seeds("transactional offsets in clusters", range(2, 300), functools.partial(replay, nodes=3))


def test_producer_continues_after_a_transaction_that_took_too_long() -> None:
    """Under version 2 it is aborted, the block raises the reason, and the next one needs no new producer."""

    async def play(simulation: Simulation) -> None:
        cluster = SimulatedCluster(simulation, 1, **ONE_REPLICA)
        cluster.start()
        async with triokafka.Producer(
            bootstrap_servers=cluster.bootstrap,
            world=cluster.client_world(),
            transactional_id="copier",
            transaction_timeout_ms=5_000,
        ) as producer:
            for half_open in (False, True):
                with pytest.raises(TransactionAbortedError, match="longer than transaction_timeout_ms=5000"):
                    async with producer.transaction() as transaction:
                        await (await producer.send("output", b"late"))
                        await trio.sleep(30)
                        if half_open:
                            assert simulation.network.half_open("client-1", "node-1")
                assert transaction.committed is False
            async with producer.transaction():
                await producer.send("output", b"next")
        world = cluster.client_world("auditor")
        found = await read_all(cluster.bootstrap, {"output": 1}, world=world, isolation_level="read_committed")
        assert [value for _, value in found[TopicPartition("output", 0)]] == [b"next"]
        await cluster.stop()

    run_simulation(play, 1)


def test_commit_fails_if_cancelled_offsets_get_no_response() -> None:
    async def play(simulation: Simulation) -> None:
        cluster = SimulatedCluster(simulation, 1, **ONE_REPLICA)
        cluster.start()
        async with (
            triokafka.Producer(
                bootstrap_servers=cluster.bootstrap,
                world=cluster.client_world(),
                transactional_id="copier",
                request_timeout_ms=1_000,
                max_block_ms=3_000,
                close_timeout_ms=1_000,
            ) as producer,
            producer.transaction() as transaction,
        ):
            await cluster.nodes[0].kill()
            with trio.move_on_after(0.1):
                await transaction.send_offsets(offsets={INPUT: 1}, group=GROUP)
            with pytest.raises(TransactionAbortableError) as raised, trio.fail_after(3.1):
                await transaction.commit()
            assert "the offsets of group 'copiers' were not added" in str(raised.value.__cause__)
            cluster.nodes[0].start()
            await transaction.abort()
        await cluster.stop()

    run_simulation(play, 1)
