"""A broker whose disk fills up, or that loses one of its data directories, while producers write to it.

The test runs in the simulated world with our own client. The broker stays up and serves its healthy logs; writes to the
others fail with KAFKA_STORAGE_ERROR, and producers retry. Once there is room again, or the broker was restarted on a
repaired disk, every record is written, once and in order, and no record acknowledged before is lost.
"""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable

import pytest
import trio

import triokafka
from tests.support.simulated import produce_through_faults, run_seeds
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.node import Node
from triokafka.errors import KafkaError, KafkaStorageError
from triokafka.structs import TopicPartition
from triokafka.testing import Host, SimulatedWorld, Simulation, run_simulation
from triokafka.world.memory import DiskFault

TOPIC = "orders"
PARTITIONS = 4
RECORDS = 100
SEEDS = 4
DIRECTORIES = ("/data/a", "/data/b")

Ledger = dict[tuple[int, int], bytes]


async def serve(world: SimulatedWorld) -> None:
    config = BrokerConfig.for_tests(
        listeners=("PLAINTEXT://broker:9092",),
        log_dirs=DIRECTORIES,
        log_flush_interval_messages=world.random.choice([1, 5, 10_000]),
    )
    async with Node(config, world=world) as node:
        await node.wait_stopped()
        raise AssertionError(f"the broker has stopped: {node.failure}")


async def produce(world: SimulatedWorld, name: str, acknowledged: Ledger) -> None:
    """Send records until all are acknowledged, however long that takes."""

    def acknowledge(partition: int, offset: int, value: bytes) -> None:
        where = partition, offset
        assert acknowledged.setdefault(where, value) == value, f"offset {where} was given to two records"

    await produce_through_faults(
        world, name, TOPIC, partitions=PARTITIONS, records=RECORDS, timeout_ms=600_000, acknowledge=acknowledge
    )


async def try_to_produce(world: SimulatedWorld, partition: int) -> KafkaError | None:
    """Send one record; return the broker's error, if any."""
    async with triokafka.Producer(
        world=world, bootstrap_servers="broker:9092", acks="all", enable_idempotence=False, retries=0
    ) as producer:
        try:
            await (await producer.send(TOPIC, b"attempt", partition=partition))
        except KafkaError as error:
            return error
    return None


async def read_all(world: SimulatedWorld, partitions: list[int]) -> Ledger:
    found: Ledger = {}
    assigned = [TopicPartition(TOPIC, partition) for partition in partitions]
    async with triokafka.Consumer(world=world, bootstrap_servers="broker:9092") as consumer:
        consumer.assign(assigned)
        ends = await consumer.end_offsets(assigned)
        consumer.seek_to_beginning(*assigned)
        while any([await consumer.position(partition) < end for partition, end in ends.items()]):
            for partition, records in (await consumer.poll(timeout_ms=1_000)).items():
                for record in records:
                    assert record.value is not None
                    found[partition.partition, record.offset] = record.value
    return found


def partitions_in(broker: Host, directory: str) -> list[int]:
    """Return the partitions whose logs are in a data directory."""
    return [n for n in range(PARTITIONS) if broker.disk.exists(f"{directory}/{TOPIC}-{n}")]


async def fill_up(world: Simulation, broker: Host) -> None:
    """Let the disk be full for a while."""
    broker.disk.capacity = broker.disk.used + world.random.choice([0, 300, 3_000])
    await trio.sleep(world.random.uniform(5, 20))
    while broker.disk.room():
        await trio.sleep(1)
    errors = [await try_to_produce(world.host("attempts").world, partition) for partition in range(PARTITIONS)]
    assert {type(error) for error in errors} == {KafkaStorageError}
    await read_all(world.host("reader").world, list(range(PARTITIONS)))  # reading needs no room
    broker.disk.capacity = None


async def lose_a_directory(world: Simulation, broker: Host) -> None:
    """Let every operation in one directory fail, until the broker is restarted on a repaired disk."""
    lost, others = partitions_in(broker, DIRECTORIES[1]), partitions_in(broker, DIRECTORIES[0])
    assert lost and others
    code = world.random.choice([errno.EIO, errno.EROFS])
    repair = broker.disk.inject(DiskFault(world.random.choice(["*", "write", "sync"]), f"{DIRECTORIES[1]}/*", code))
    await trio.sleep(world.random.uniform(5, 20))
    assert await try_to_produce(world.host("attempts").world, others[0]) is None
    await read_all(world.host("reader").world, others)
    repair()
    await broker.kill()
    broker.start(serve)


async def scenario(world: Simulation, fail: Callable[[Simulation, Host], object]) -> None:
    broker, acknowledged = world.host("broker"), Ledger()
    broker.start(serve)
    async with triokafka.AdminClient(world=world.host("admin").world, bootstrap_servers="broker:9092") as admin:
        topic = triokafka.NewTopic(TOPIC, PARTITIONS, 1, configs={"internal.segment.bytes": "2000"})
        await admin.create_topics([topic])
    async with trio.open_nursery() as producers:
        for name in ("first", "second"):
            producers.start_soon(produce, world.host(name).world, name, acknowledged)
        await trio.sleep(world.random.uniform(2, 8))
        await fail(world, broker)  # type: ignore[misc]
    await broker.kill()
    broker.start(serve)
    found = await read_all(world.host("auditor").world, list(range(PARTITIONS)))
    assert len(acknowledged) == 2 * RECORDS
    lost = {where for where, value in acknowledged.items() if found.get(where) != value}
    assert not lost, f"acknowledged, but lost: {sorted(lost)}"
    for partition in range(PARTITIONS):
        for name in ("first", "second"):
            values = [
                v.decode() for (n, _), v in sorted(found.items()) if n == partition and v.startswith(name.encode())
            ]
            numbers = [int(value.partition("-")[2]) for value in values]
            assert numbers == list(range(partition, RECORDS, PARTITIONS)), f"{name} in partition {partition}"


FAILURES = {"full disk": fill_up, "lost directory": lose_a_directory}


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("failure", list(FAILURES))
def test_records_outlive_a_disk_that_fails(failure: str, seed: int) -> None:
    run_simulation(functools.partial(scenario, fail=FAILURES[failure]), seed)


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("failure", list(FAILURES))
def test_records_outlive_disks_that_fail_in_many_ways(failure: str) -> None:
    first, count = (
        int(os.environ.get("TRIOKAFKA_LONG_FIRST", "1000")),
        int(os.environ.get("TRIOKAFKA_LONG_SEEDS", "500")),
    )
    run = functools.partial(scenario, fail=FAILURES[failure])
    run_seeds(failure, range(first, first + count), lambda seed: run_simulation(run, seed))
