"""Brokers that collide at Apache Kafka's coordinator register their partitions one after the other."""

from __future__ import annotations

import itertools
from collections import deque
from types import SimpleNamespace
from typing import Any

import trio

from tests.support.scripted_broker import ScriptedBroker
from tests.support.scripted_coordinator import ScriptedCoordinator
from tests.support.scripted_producing import Setup, scripted
from tests.support.simulated import simulated
from tests.unit.client.producer.transactions.test_transaction import transactional
from triokafka.client.producer.transactions.registration_order import RegistrationOrder
from triokafka.protocol.api.produce import ProduceRequest
from triokafka.records import iter_batches
from triokafka.structs import TopicPartition

_HOLD = 0.02  # Apache Kafka's add.partitions.to.txn.retry.backoff.ms
_STORING = 0.005


# ---------------------------------------------------------------- the order


class Queue:
    """The state of a partition's queue that counts."""

    def __init__(self, broker: int) -> None:
        self.broker = broker
        self.sequences = SimpleNamespace(last_acked=-1)
        self.batches = deque(["a batch"])
        self.on_wire = 0

    def acknowledge(self) -> None:
        self.batches.clear()
        self.sequences.last_acked = 0


def registrations(*, in_turn: bool = False) -> Any:
    made: Any = RegistrationOrder(lambda queue: queue.broker)  # type: ignore[attr-defined]
    if in_turn:
        queues = Queue(1), Queue(2)
        for queue in queues:
            assert made.admits(queue)
            queue.acknowledge()
        assert made.finished(late=True)
        made.begin_transaction()
    return made


def test_brokers_register_at_once_until_a_response_is_late() -> None:
    order = registrations()
    first, second = Queue(1), Queue(2)
    assert order.admits(first)
    assert order.admits(second)
    first.acknowledge()
    assert not order.finished(late=True), "the second broker still registers"
    second.acknowledge()
    assert order.finished(late=True)
    order.begin_transaction()
    assert order.admits(Queue(1))
    assert not order.admits(Queue(2))


def test_late_response_of_the_only_broker_is_no_collision() -> None:
    order = registrations()
    first = Queue(1)
    assert order.admits(first)
    first.acknowledge()
    assert order.finished(late=True)
    order.begin_transaction()
    assert order.admits(Queue(1))
    assert order.admits(Queue(2))


def test_partitions_of_one_broker_register_together_and_the_next_broker_follows() -> None:
    order = registrations(in_turn=True)
    first, same_broker, other = Queue(1), Queue(1), Queue(2)
    assert [order.admits(queue) for queue in (first, same_broker, other)] == [True, True, False]
    first.acknowledge()
    assert not order.finished(late=False)
    assert order.admits(first), "it is registered"
    same_broker.acknowledge()
    assert order.finished(late=False)
    assert order.admits(other)


def test_partition_without_a_leader_waits_for_no_other_and_none_for_it() -> None:
    order = registrations(in_turn=True)
    assert order.admits(Queue(-1))
    assert order.admits(Queue(1))
    assert order.admits(Queue(-1))
    assert not order.admits(Queue(2))


def test_discarded_batch_and_ended_transaction_keep_no_broker_waiting() -> None:
    order = registrations(in_turn=True)
    discarded = Queue(1)
    assert order.admits(discarded)
    discarded.batches.clear()
    assert order.finished(late=False)
    assert order.admits(Queue(2))
    order.begin_transaction()
    assert order.admits(Queue(3))


def _transactions_in_turn(order: Any) -> int:
    """Return the number of transactions until one in which two brokers register at once; they collide in that one."""
    for number in itertools.count():
        queues = Queue(1), Queue(2)
        if all([order.admits(queue) for queue in queues]):
            for queue in queues:
                queue.acknowledge()
            assert order.finished(late=True)
            order.begin_transaction()
            return number
        order.begin_transaction()
    raise AssertionError


def test_turns_last_longer_each_time_that_brokers_collide_again() -> None:
    order = registrations()
    assert [_transactions_in_turn(order) for _ in range(9)] == [0, 9, 19, 39, 79, 159, 319, 499, 499]


def test_turns_are_short_after_many_transactions_without_a_collision() -> None:
    order = registrations()
    assert [_transactions_in_turn(order) for _ in range(4)] == [0, 9, 19, 39]
    for _ in range(200):
        order.begin_transaction()
    assert [_transactions_in_turn(order) for _ in range(2)] == [0, 9]


# ---------------------------------------------------------------- requests


class OneAtATime:
    """Registers partitions as Apache Kafka: a broker that meets another registration asks again after 20 ms."""

    def __init__(self, setup: Setup) -> None:
        self.collisions = 0
        self._storing_until = 0.0
        self._known: set[tuple[int, int, TopicPartition]] = set()
        for partition in range(6):
            setup.cluster.move("orders", partition, 1 + partition % 3)
        for broker in setup.cluster.brokers.values():
            broker.script(ProduceRequest, *itertools.repeat(self._handler(broker), 100))

    def _handler(self, broker: ScriptedBroker) -> Any:
        async def produce(request: ProduceRequest) -> Any:
            header = broker.headers[-1]
            for topic in request.topic_data:
                for data in topic.partition_data:
                    assert data.records is not None
                    batch = next(iter_batches(data.records))
                    key = batch.producer_id, batch.producer_epoch, TopicPartition("orders", data.index)
                    if key not in self._known:
                        self._known.add(key)
                        await self._register()
            return broker._behave(request, header)

        return produce

    async def _register(self) -> None:
        while trio.current_time() < self._storing_until:
            self.collisions += 1
            await trio.sleep(_HOLD)
        self._storing_until = trio.current_time() + _STORING
        await trio.sleep(_STORING)


@simulated
async def test_transactions_over_several_brokers_collide_rarely() -> None:
    async with scripted(nodes=3, orders=6) as s, transactional(s, linger_ms=0) as producer:
        coordinator = ScriptedCoordinator(s.cluster)
        registered = OneAtATime(s)
        collided = []
        for number in range(40):
            before = registered.collisions
            async with producer.transaction():
                for partition in range(6):
                    await producer.send("orders", b"%d" % number, partition=partition)
            collided.append(registered.collisions > before)
        assert 1 <= collided.count(True) <= 3
        for partition in range(6):
            assert coordinator.committed[TopicPartition("orders", partition)] == [b"%d" % n for n in range(40)]


@simulated
async def test_aborted_transaction_keeps_no_broker_of_the_next_one_waiting() -> None:
    async with scripted(nodes=3, orders=6) as s, transactional(s, linger_ms=0) as producer:
        coordinator = ScriptedCoordinator(s.cluster)
        OneAtATime(s)
        for aborts in (False, False, True, False, True, False):
            transaction = producer.transaction()
            await transaction.begin()
            for partition in (0, 2) if aborts else (1, 2):
                await producer.send("orders", b"x", partition=partition)
            await (transaction.abort() if aborts else transaction.commit())
        assert coordinator.ends.count(True) == 4
        for partition in (1, 2):
            assert coordinator.committed[TopicPartition("orders", partition)] == [b"x"] * 4
