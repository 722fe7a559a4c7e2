"""A compacted topic on a broker that is killed and loses its power during cleaning, in the simulated world.

A reader finds the last acknowledged value of each key; it reaches the end despite deleted records; the log stays small.
"""

from __future__ import annotations

import functools
import random

import pytest
import trio

import triokafka
from tests.support.simulated import run_seeds
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.node import Node
from triokafka.structs import TopicPartition
from triokafka.testing import SimulatedWorld, Simulation, run_simulation

PARTITION = TopicPartition("state", 0)
BOOTSTRAP = "broker:9092"
KEYS = 12
RECORDS = 250
SEEDS = 8
LONG_SEEDS = 1_000
NONE = -1

Found = list[tuple[int, str, int]]
"""Offset, key and number of each record; `NONE` for a tombstone."""


async def serve(world: SimulatedWorld) -> None:
    config = BrokerConfig.for_tests(
        listeners=("PLAINTEXT://broker:9092",),
        log_dirs=("/data",),
        log_flush_interval_messages=1,  # acknowledged records are on disk, otherwise a power cut could lose them
        log_cleaner_backoff_ms=20,
        log_cleaner_threads=world.random.choice([1, 3]),
        log_cleaner_dedupe_buffer_size=world.random.choice([100, 400, 1_000_000]),
        log_cleaner_io_buffer_size=world.random.choice([100, 100_000]),
        log_segment_delete_delay_ms=world.random.choice([0, 60_000]),
        log_retention_check_interval_ms=500,
        log_initial_task_delay_ms=100,
    )
    async with Node(config, world=world) as node:
        await node.wait_stopped()
        raise AssertionError(f"the broker has stopped: {node.failure}")


async def create(simulation: Simulation) -> None:
    configs = {
        "cleanup.policy": "compact",
        "internal.segment.bytes": "900",
        "index.interval.bytes": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "300",
    }
    async with triokafka.AdminClient(world=simulation.host("admin").world, bootstrap_servers=BOOTSTRAP) as admin:
        await admin.create_topics([triokafka.NewTopic(PARTITION.topic, 1, 1, configs)])


async def produce(simulation: Simulation, chance: random.Random) -> dict[str, int]:
    """Write numbers to keys, one after the other; return the last one of each key."""
    last: dict[str, int] = {}
    async with triokafka.Producer(
        world=simulation.host("client").world,
        bootstrap_servers=BOOTSTRAP,
        compression_type=chance.choice(["none", "gzip", "zstd"]),
        delivery_timeout_ms=600_000,
        request_timeout_ms=2_000,
        retry_backoff_ms=20,
        max_block_ms=600_000,
        close_timeout_ms=600_000,
    ) as producer:
        for start in range(0, RECORDS, 5):
            deliveries = []
            for number in range(start, start + 5):
                key = f"k{chance.randrange(KEYS)}"
                value = None if chance.random() < 0.2 else b"%d" % number
                last[key] = NONE if value is None else number
                deliveries.append(await producer.send(PARTITION.topic, value, key=key.encode(), partition=0))
            for delivery in deliveries:
                await delivery
            await trio.sleep(chance.uniform(0, 0.05))
    return last


async def read(simulation: Simulation) -> Found:
    found: Found = []
    async with triokafka.Consumer(
        world=simulation.host("reader").world, bootstrap_servers=BOOTSTRAP, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([PARTITION])
        end = (await consumer.end_offsets([PARTITION]))[PARTITION]
        while await consumer.position(PARTITION) < end:
            for record in (await consumer.poll(timeout_ms=500)).get(PARTITION, []):
                found.append((record.offset, record.key.decode(), NONE if record.value is None else int(record.value)))
    return found


def state_of(found: Found) -> dict[str, int]:
    """Return the state that a reader from the beginning builds."""
    offsets = [offset for offset, _, _ in found]
    assert offsets == sorted(set(offsets))
    state = {key: number for _, key, number in found}
    return {key: number for key, number in state.items() if number != NONE}


async def _inject_faults(simulation: Simulation, chance: random.Random) -> None:
    host = simulation.host("broker")
    for _ in range(chance.randrange(8)):
        await trio.sleep(chance.uniform(0, 0.6))
        await host.kill(power_cut=chance.random() < 0.5)
        await trio.sleep(chance.uniform(0, 0.2))
        host.start(serve)


async def _schedule(simulation: Simulation) -> None:
    chance = random.Random(f"{simulation.seed}/test")
    simulation.host("broker").start(serve)
    await create(simulation)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_inject_faults, simulation, chance)
        last = await produce(simulation, chance)
    expected = {key: number for key, number in last.items() if number != NONE}
    assert state_of(await read(simulation)) == expected
    await trio.sleep(10)
    # The active segment, and one record of each key below it.
    left = await read(simulation)
    assert state_of(left) == expected
    assert len(left) <= KEYS + 40


def run(seed: int) -> None:
    run_simulation(_schedule, seed=seed)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_last_value_of_each_key_survives_kills_and_power_cuts(seed: int) -> None:
    run(seed)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_last_value_of_each_key_survives_for_long() -> None:
    run_seeds("compaction through kills", range(10_000, 10_000 + LONG_SEEDS), functools.partial(run))
