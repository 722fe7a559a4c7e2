"""Sends and flushes of several tasks, each cancelled at its 1st, 2nd, … nth checkpoint until it completes, while memory
is short and the broker fails: one simulated world per example.

After every cancellation the memory adds up and nothing leaks; at the end each accepted record is in the log once, those
of one task in order, and no other record.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

import triokafka
from tests.support.cancellation import cancelled_at_each_checkpoint
from tests.support.scripted_broker import CLOSE, CLOSE_AFTER, ScriptedCluster
from triokafka.protocol.api.init_producer_id import InitProducerIdRequest
from triokafka.protocol.api.produce import ProduceRequest
from triokafka.structs import TopicPartition
from triokafka.testing import Simulation, run_simulation

PARTITIONS = 2
MEMORY = 1_200
BATCH = 300

operations = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.sampled_from([10, 100, 200, 600]), st.sampled_from([None, 0, 1])),
        st.tuples(st.just("many"), st.sampled_from([1, 5]), st.sampled_from([None, 0, 1])),
        st.tuples(st.just("flush"), st.just(0), st.none()),
        st.tuples(st.just("sleep"), st.sampled_from([1, 20, 300]), st.none()),
    ),
    min_size=1,
    max_size=8,
)
accidents = st.lists(st.sampled_from(["refuse", "close", "close after", "cut", "too large", "new id"]), max_size=4)


def check_memory(producer: triokafka.Producer, *, idle: bool = False) -> None:
    accumulator = producer._accumulator
    pool = accumulator.pool
    reserved = sum(waiter.reserved for waiter in pool._waiters)
    held = sum(batch.reserved for batch in accumulator.batches.unreleased)
    assert pool.in_use == held + reserved
    assert pool.available >= 0
    if idle:
        assert (pool.in_use, pool.waiting, accumulator.flushes) == (0, 0, 0)
        assert not accumulator.batches.unsettled


async def _work(
    producer: triokafka.Producer,
    cluster: ScriptedCluster,
    name: int,
    todo: list[Any],
    deliveries: list[tuple[int, int, Any]],
    cancel: bool,
) -> None:
    number = 0

    async def check() -> None:
        await trio.testing.wait_all_tasks_blocked()
        check_memory(producer)

    async def run(operation: Any) -> Any:
        return (await cancelled_at_each_checkpoint(operation, check))[0] if cancel else await operation()

    for kind, size, partition in todo:
        if kind == "send":
            value = b"%d %d " % (name, number) + b"x" * size
            delivery = await run(lambda value=value, p=partition: producer.send("t", value, partition=p))
            deliveries.append((name, number, delivery))
            number += 1
        elif kind == "many":
            # Records sent before the cancellation were accepted, so only an uncancelled run can be compared.
            values = [b"%d %d " % (name, number + i) + b"y" * 100 for i in range(size)]
            for i, delivery in enumerate(await producer.send_many("t", values, partition=partition)):
                deliveries.append((name, number + i, delivery))
            number += size
        elif kind == "flush":
            await run(producer.flush)
        else:
            await trio.sleep(size / 1000)


async def _accidents(cluster: ScriptedCluster, kinds: list[str]) -> None:
    broker = cluster.brokers[1]
    for kind in kinds:
        await trio.sleep(0.02)
        if kind == "cut":
            broker.cut()
        elif kind == "new id":
            broker.script(InitProducerIdRequest, CLOSE)
        else:
            answer = {"refuse": broker.refuse(19), "close": CLOSE, "close after": CLOSE_AFTER}.get(kind)
            broker.script(ProduceRequest, answer if answer is not None else _split_once(broker))


def _split_once(broker: Any) -> Any:
    def answer(request: ProduceRequest) -> Any:
        several = {
            p.index: 10 for p in request.topic_data[0].partition_data if bytes(p.records or b"")[57:61] > b"\0\0\0\1"
        }
        return broker.produce(request, several)

    return answer


@settings(max_examples=150, deadline=None)
@given(
    todo=st.lists(operations, min_size=1, max_size=3),
    faults=accidents,
    in_flight=st.sampled_from([1, 5]),
    linger=st.sampled_from([0, 5, 200]),
    seed=st.integers(0, 10_000),
)
def test_operations_cancelled_anywhere_lose_leak_and_repeat_no_record(
    todo: list[list[Any]], faults: list[str], in_flight: int, linger: int, seed: int
) -> None:

    async def main(simulation: Simulation) -> None:
        cluster = ScriptedCluster(t=PARTITIONS)
        address = await cluster.start(simulation.nursery, simulation.host("broker").world)
        deliveries: list[tuple[int, int, Any]] = []
        async with triokafka.Producer(
            bootstrap_servers=address,
            world=simulation.host("client").world,
            batch_size=BATCH,
            buffer_memory=MEMORY,
            linger_ms=linger,
            max_in_flight_requests_per_connection=in_flight,
            request_timeout_ms=2_000,
            retry_backoff_ms=20,
        ) as producer:
            simulation.nursery.start_soon(_accidents, cluster, faults)
            async with trio.open_nursery() as nursery:
                for name, operations_of_task in enumerate(todo):
                    nursery.start_soon(_work, producer, cluster, name, operations_of_task, deliveries, name < 2)
            await producer.flush()
            check_memory(producer, idle=True)
            expected: dict[TopicPartition, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
            for name, number, delivery in deliveries:
                metadata = await delivery
                expected[metadata.topic_partition][name].append(number)
        for partition in range(PARTITIONS):
            found: dict[int, list[int]] = defaultdict(list)
            for value in cluster.values("t", partition):
                name_in_log, number_in_log = (value or b"").split(b" ")[:2]
                found[int(name_in_log)].append(int(number_in_log))
            assert found == expected[TopicPartition("t", partition)]

    run_simulation(main, seed)
