"""Order and number of records in the log, with retries forced and connections cut by chance, one schedule per seed."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import trio

import triokafka
from tests.scripted_broker import CLOSE, CLOSE_AFTER, ScriptedBroker, ScriptedCluster
from triokafka.errors import KafkaError
from triokafka.protocol.api.produce import ProduceRequest
from triokafka.testing import Simulation, run_simulation

SEEDS = range(30)
RECORDS = 120
PARTITIONS = 2


def _numbers(cluster: ScriptedCluster, partition: int) -> list[int]:
    return [int(value[:6]) for value in cluster.values("orders", partition) if value]


async def _trouble(simulation: Simulation, cluster: ScriptedCluster, chance: random.Random) -> None:
    """Refuse, cut, lose answers and move leaders now and then, for a while."""
    for _ in range(chance.randrange(5, 25)):
        await trio.sleep(chance.uniform(0.001, 0.1))
        broker: ScriptedBroker = cluster.brokers[chance.choice(list(cluster.brokers))]
        kind = chance.randrange(6)
        if kind == 0:
            broker.script(ProduceRequest, broker.refuse(chance.choice([6, 7, 13, 19])))
        elif kind == 1:
            broker.script(ProduceRequest, CLOSE)
        elif kind == 2:
            broker.script(ProduceRequest, CLOSE_AFTER)
        elif kind == 3:
            broker.script(ProduceRequest, broker.refuse(7, chance.randrange(PARTITIONS)))
        elif kind == 4:
            broker.cut()
        else:
            cluster.move("orders", chance.randrange(PARTITIONS), chance.choice(list(cluster.brokers)))


def _run(seed: int, **options: Any) -> tuple[ScriptedCluster, list[Any]]:
    async def main(simulation: Simulation) -> tuple[ScriptedCluster, list[Any]]:
        cluster = ScriptedCluster(orders=PARTITIONS)
        address = await cluster.start(simulation.nursery, simulation.host("broker").world, nodes=2)
        chance = random.Random(seed)
        outcomes: list[Any] = []
        async with triokafka.Producer(
            bootstrap_servers=address,
            world=simulation.host("client").world,
            batch_size=300,
            linger_ms=chance.choice([0, 2]),
            request_timeout_ms=2000,
            retry_backoff_ms=20,
            **options,
        ) as producer:
            await producer.partitions_for("orders")
            simulation.nursery.start_soon(_trouble, simulation, cluster, chance)
            deliveries = []
            for number in range(RECORDS):
                value = b"%06d" % number + b"x" * 60
                deliveries.append(await producer.send("orders", value, partition=number % PARTITIONS))
                if chance.random() < 0.2:
                    await trio.sleep(chance.uniform(0, 0.03))
            for delivery in deliveries:
                try:
                    outcomes.append(await delivery)
                except KafkaError as error:
                    outcomes.append(error)
            assert producer.metrics()["buffer_available_bytes"] == producer.metrics()["buffer_total_bytes"]
        return cluster, outcomes

    return run_simulation(main, seed)


@pytest.mark.parametrize("in_flight", [1, 5])
def test_idempotent_producer_writes_each_record_once_in_order(in_flight: int) -> None:
    """(`client/MOD-2`, `client/ACC-25`)"""
    for seed in SEEDS:
        cluster, outcomes = _run(seed, max_in_flight_requests_per_connection=in_flight)
        for partition in range(PARTITIONS):
            expected = list(range(partition, RECORDS, PARTITIONS))
            assert _numbers(cluster, partition) == expected, f"seed {seed}"
        for number, metadata in enumerate(outcomes):
            assert metadata.offset in (-1, number // PARTITIONS), f"seed {seed}"


def test_one_request_in_flight_keeps_the_order_without_idempotence() -> None:
    """Adjacent repeats are possible, gaps are not (`client/SND-6`, `client/ACC-17`)."""
    repeats = 0
    for seed in SEEDS:
        cluster, _ = _run(seed, enable_idempotence=False, max_in_flight_requests_per_connection=1)
        for partition in range(PARTITIONS):
            numbers = _numbers(cluster, partition)
            batches = _without_repeated_runs(numbers)
            assert batches == list(range(partition, RECORDS, PARTITIONS)), f"seed {seed}"
            repeats += len(numbers) - len(batches)
    assert repeats, "no schedule repeated anything: the faults do not bite"


def _without_repeated_runs(numbers: list[int]) -> list[int]:
    """Drop what was written again at once: each number must be the next one, or begin again what was just written."""
    kept: list[int] = []
    for number in numbers:
        if not kept or number > kept[-1]:
            kept.append(number)
        else:
            assert number in kept
    for repeated, following in itertools.pairwise(numbers):
        assert (
            following <= repeated or following == repeated + PARTITIONS or following == kept[kept.index(repeated) + 1]
        )
    return kept


def test_acks_0_repeats_nothing() -> None:
    """(`client/SND-9`)"""
    for seed in SEEDS:
        cluster, _ = _run(seed, acks=0)
        for partition in range(PARTITIONS):
            numbers = _numbers(cluster, partition)
            assert len(numbers) == len(set(numbers)), f"seed {seed}"
