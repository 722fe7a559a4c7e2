"""A broker, two producers and a consumer group in the simulated world, through rebalances and a broker crash.

Every seed chooses delays, losses, cut connections, moments of failure, and whether the broker's machine loses its power
(and its unsynced data) or only its process dies. In every run no acknowledged record is lost, no record is in the log
twice, each offset has one record, and at the end the group has handled and committed all records.
"""

from __future__ import annotations

import functools
from collections import Counter

import pytest
import trio

import triokafka
from tests.support.simulated import produce_through_faults, run_in_another_process, run_seeds
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.node import Node
from triokafka.errors import KafkaError
from triokafka.structs import TopicPartition
from triokafka.testing import SimulatedWorld, Simulation, run_simulation

TOPIC = "orders"
GROUP = "billing"
PARTITIONS = 3
RECORDS = 120
SEEDS = 15
LONG_SEEDS = 1_000


class Ledger:
    """The producers' acknowledgements and the records of the members."""

    def __init__(self) -> None:
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.handled: dict[tuple[int, int], bytes] = {}
        self.generations: set[int] = set()
        self.changed = trio.Event()

    def acknowledge(self, partition: int, offset: int, value: bytes) -> None:
        assert self.acknowledged.setdefault((partition, offset), value) == value
        self._notify()

    def handle(self, partition: int, offset: int, value: bytes) -> None:
        # One offset of a partition has one record for every reader (inconsistent-offsets).
        assert self.handled.setdefault((partition, offset), value) == value
        self._notify()

    def _notify(self) -> None:
        self.changed.set()
        self.changed = trio.Event()


async def serve(world: SimulatedWorld, *, sync_always: bool) -> None:
    config = BrokerConfig.for_tests(
        listeners=("PLAINTEXT://broker:9092",),
        log_dirs=("/data",),
        offsets_topic_num_partitions=1,
        group_initial_rebalance_delay_ms=500,
        **({"log_flush_interval_messages": 1} if sync_always else {}),
    )
    async with Node(config, world=world):
        await trio.sleep_forever()


async def produce(world: SimulatedWorld, name: str, ledger: Ledger) -> None:
    await produce_through_faults(
        world, name, TOPIC, partitions=PARTITIONS, records=RECORDS, timeout_ms=300_000, acknowledge=ledger.acknowledge
    )


async def consume(world: SimulatedWorld, ledger: Ledger) -> None:
    async with triokafka.Consumer(
        TOPIC,
        world=world,
        bootstrap_servers="broker:9092",
        group_id=GROUP,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=1_000,
        request_timeout_ms=5_000,
        default_api_timeout_ms=300_000,
    ) as consumer:
        while True:
            polled = await consumer.poll(timeout_ms=1_000, max_records=20)
            for partition, records in polled.items():
                for record in records:
                    assert record.value is not None
                    ledger.handle(partition.partition, record.offset, record.value)
            ledger.generations.add(consumer.health().generation)
            if polled:
                try:
                    await consumer.commit(timeout_ms=10_000)
                except KafkaError:
                    continue  # the group rebalanced: the present owner handles the records again


async def whole_log(world: SimulatedWorld) -> tuple[dict[tuple[int, int], bytes], dict[int, int], dict[int, int]]:
    """Return the final log, its end offsets, and the group's committed offsets."""
    partitions = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
    found: dict[tuple[int, int], bytes] = {}
    async with triokafka.Consumer(
        world=world, bootstrap_servers="broker:9092", group_id=GROUP, enable_auto_commit=False
    ) as consumer:
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        committed = await consumer.committed(partitions)
        consumer.seek_to_beginning(*partitions)
        while any([await consumer.position(partition) < end for partition, end in ends.items()]):
            for partition, records in (await consumer.poll(timeout_ms=1_000)).items():
                for record in records:
                    assert record.value is not None
                    found[partition.partition, record.offset] = record.value
    return (
        found,
        {partition.partition: end for partition, end in ends.items()},
        {tp.partition: 0 if position is None else position.offset for tp, position in committed.items()},
    )


async def scenario(world: Simulation) -> str:
    power_cut = world.random.random() < 0.5
    ledger = Ledger()
    broker = world.host("broker")
    broker.start(lambda process: serve(process, sync_always=power_cut))
    async with triokafka.AdminClient(world=world.host("admin").world, bootstrap_servers="broker:9092") as admin:
        await admin.create_topics([triokafka.NewTopic(TOPIC, PARTITIONS, 1)])
    world.network.conditions.loss = world.random.choice([0, 0.01, 0.05])
    world.network.conditions.cut = world.random.choice([0, 0.001, 0.005])
    world.network.conditions.max_delay = world.random.choice([0.002, 0.05])

    async with trio.open_nursery() as producers:
        for name in ("first", "second"):
            producers.start_soon(produce, world.host(name).world, name, ledger)
        for number in (1, 2):
            world.host(f"member-{number}").start(lambda process: consume(process, ledger))
        await trio.sleep(world.random.uniform(2, 8))
        world.host("member-3").start(lambda process: consume(process, ledger))
        await trio.sleep(world.random.uniform(2, 8))
        await broker.kill(power_cut=power_cut)
        await trio.sleep(world.random.uniform(0, 3))
        broker.start(lambda process: serve(process, sync_always=power_cut))
        await trio.sleep(world.random.uniform(0, 5))
        await world.host("member-1").kill()

    # All records are acknowledged or failed; from here on there are no faults.
    world.network.conditions.loss = world.network.conditions.cut = 0
    with trio.fail_after(120):
        while not ledger.acknowledged.keys() <= ledger.handled.keys():
            await ledger.changed.wait()
    with trio.fail_after(60):
        while True:
            found, ends, committed = await whole_log(world.host("auditor").world)
            if committed == ends:
                break
            await trio.sleep(1)

    assert len(ledger.acknowledged) == 2 * RECORDS
    lost = {where for where, value in ledger.acknowledged.items() if found.get(where) != value}
    assert not lost, f"acknowledged, but lost: {sorted(lost)}"
    twice = [value for value, count in Counter(found.values()).items() if count > 1]
    assert not twice, f"in the log more than once: {twice}"
    for partition in range(PARTITIONS):
        for name in ("first", "second"):
            numbers = [
                int(value.decode().partition("-")[2])
                for (where, _), value in sorted(found.items())
                if where == partition and value.startswith(name.encode())
            ]
            assert numbers == sorted(numbers), f"{name}'s records are out of order in partition {partition}"
    assert len(ledger.generations) >= 2
    return world.trace_digest()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_acknowledged_record_is_lost_and_every_record_is_handled(seed: int) -> None:
    run_simulation(scenario, seed)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_no_acknowledged_record_is_lost_and_every_record_is_handled_in_many_schedules() -> None:
    run_seeds("a group through faults", range(SEEDS, LONG_SEEDS), functools.partial(run_simulation, scenario))


def test_one_seed_gives_the_same_run_twice_and_in_another_process() -> None:
    here = run_simulation(scenario, seed=11)
    assert run_simulation(scenario, seed=11) == here
    assert run_in_another_process(scenario, 11) == here
