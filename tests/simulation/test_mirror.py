"""A mirror between two brokers in the simulated world, while it and both brokers are killed and connections are cut.

At least once: every acknowledged record is in the target, in the order of the source, and at most repeated. Exactly
once: readers with ``read_committed`` read the source's records, once each. Offsets are translated exactly in both
modes.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio

import triokafka
from tests.support.read_back import Entries, read_all
from tests.support.simulated import run_seeds
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.node import Node
from triokafka.mirror import Mirror, MirrorOptions
from triokafka.structs import TopicPartition
from triokafka.testing import SimulatedWorld, Simulation, run_simulation

TOPICS = {"orders": 2, "payments": 1}
RECORDS = 120
QUICK_SEEDS = 3
LONG_SEEDS = 500
_IMPATIENT: dict[str, Any] = {"request_timeout_ms": 2_000, "retry_backoff_ms": 20, "reconnect_backoff_max_ms": 200}


class Machine:
    """A host with one broker, which is its own cluster."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        self.host = simulation.host(name)
        self.bootstrap = f"{name}:9092"
        self.start()

    def start(self) -> None:
        self.host.start(self._serve)

    async def _serve(self, world: SimulatedWorld) -> None:
        config = BrokerConfig.for_tests(listeners=(f"PLAINTEXT://{self.bootstrap}",), log_dirs=("/data",))
        async with Node(config, world=world):
            await trio.sleep_forever()

    async def restart(self, away: float) -> None:
        await self.host.kill()
        await trio.sleep(away)
        self.start()


class World:
    """West, east, and the mirror from west to east."""

    def __init__(self, simulation: Simulation, *, exactly_once: bool, **more: Any) -> None:
        self.simulation = simulation
        self.west, self.east = Machine(simulation, "west"), Machine(simulation, "east")
        self.host = simulation.host("mirror")
        self.options = MirrorOptions(
            source={"bootstrap_servers": self.west.bootstrap, **_IMPATIENT},
            target={"bootstrap_servers": self.east.bootstrap, **_IMPATIENT},
            source_alias="west",
            target_alias="east",
            exactly_once=exactly_once,
            sync_group_offsets=True,
            refresh_interval_ms=2_000,
            commit_interval_ms=60,
            checkpoint_interval_ms=400,
            consumer_options={"max_partition_fetch_bytes": 700},
            producer_options={"batch_size": 500, "transaction_timeout_ms": 8_000}
            if exactly_once
            else {"batch_size": 500},
            **more,
        )

    def start_mirror(self) -> None:
        self.host.start(lambda world: Mirror(self.options, world=world).run())

    async def finish(self) -> None:
        """Copy the rest with an undisturbed mirror."""
        await self.host.kill()
        with trio.fail_after(120):
            await Mirror(self.options, world=self.simulation.host("last").world).run(until_caught_up=True)

    async def read(self, machine: Machine, prefix: str = "") -> Entries:
        return await read_all(
            machine.bootstrap,
            {prefix + topic: count for topic, count in TOPICS.items()},
            world=self.simulation.host("reader").world,
            isolation_level="read_committed",
        )


async def _create_topics(world: World) -> None:
    async with triokafka.AdminClient(
        bootstrap_servers=world.west.bootstrap, world=world.simulation.host("admin").world
    ) as admin:
        await admin.create_topics([triokafka.NewTopic(name, count) for name, count in TOPICS.items()])


async def _write(world: World, chance: random.Random) -> None:
    """Write records, some of them in transactions that are aborted."""
    partitions = [TopicPartition(topic, number) for topic, count in TOPICS.items() for number in range(count)]
    async with triokafka.Producer(
        bootstrap_servers=world.west.bootstrap, world=world.simulation.host("writer").world, transactional_id="writer",
        batch_size=300, **_IMPATIENT,
    ) as producer:  # fmt: skip
        written = 0
        while written < RECORDS:
            transaction = producer.transaction()
            await transaction.begin()
            for _ in range(chance.randrange(1, 12)):
                topic, number = chance.choice(partitions)
                await producer.send(
                    topic, b"%d" % written, key=b"k", partition=number, headers=[("n", b"%d" % written)]
                )
                written += 1
            if chance.random() < 0.2:
                await transaction.abort()
            else:
                try:
                    await transaction.commit()
                except triokafka.errors.TransactionAbortableError:
                    await transaction.abort()
            await trio.sleep(chance.uniform(0, 1.5))


async def _inject_faults(world: World, chance: random.Random, until: trio.Event) -> None:
    while not until.is_set():
        await trio.sleep(chance.uniform(0.3, 2.0))
        draw = chance.random()
        if draw < 0.5:
            await world.host.kill()
            world.start_mirror()
        elif draw < 0.65:
            await world.east.restart(chance.uniform(0, 0.5))
        elif draw < 0.75:
            await world.west.restart(chance.uniform(0, 0.5))
        else:
            world.simulation.network.cut("mirror")


async def _check_positions(world: World, source: Entries, target: Entries, chance: random.Random) -> None:
    """Check that groups at random offsets continue in the target with exactly the next record."""
    groups: dict[str, dict[TopicPartition, int]] = {}
    async with triokafka.AdminClient(
        bootstrap_servers=world.west.bootstrap, world=world.simulation.host("admin").world
    ) as admin:
        for number in range(12):
            positions = {
                partition: chance.randrange(records[-1][0] + 2) for partition, records in source.items() if records
            }
            groups[f"group-{number}"] = positions
            await admin.alter_group_offsets(f"group-{number}", positions)
    await world.finish()
    async with triokafka.AdminClient(
        bootstrap_servers=world.east.bootstrap, world=world.simulation.host("admin").world
    ) as admin:
        for group, positions in groups.items():
            found = await admin.list_group_offsets(group)
            for partition, offset in positions.items():
                remote = TopicPartition(f"west.{partition.topic}", partition.partition)
                expected_next = [value for place, value in source[partition] if place >= offset]
                there = [value for place, value in target[remote] if place >= found[remote].offset]
                if not world.options.exactly_once:
                    assert there[:1] == expected_next[:1]
                    there = list(dict.fromkeys(there))
                assert there == expected_next, f"{group} at {partition} {offset}: {found[remote].offset}"


def _run(seed: int, exactly_once: bool) -> None:
    async def main(simulation: Simulation) -> None:
        chance = random.Random(f"mirror {seed} {exactly_once}")
        world = World(simulation, exactly_once=exactly_once)
        await _create_topics(world)
        simulation.network.conditions.max_delay = 0.03  # so that a kill often happens between two responses
        world.start_mirror()
        written = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_inject_faults, world, chance, written)
            await _write(world, chance)
            written.set()
        await world.finish()
        source, target = await world.read(world.west), await world.read(world.east, "west.")
        for partition, records in source.items():
            remote = TopicPartition(f"west.{partition.topic}", partition.partition)
            sent, arrived = [value for _, value in records], [value for _, value in target[remote]]
            if exactly_once:
                assert arrived == sent
            else:
                assert list(dict.fromkeys(arrived)) == sent, "a record is missing, or out of order"
        await _check_positions(world, source, target, chance)

    run_simulation(main, seed=seed)


@pytest.mark.parametrize("seed", range(QUICK_SEEDS))
@pytest.mark.parametrize("exactly_once", [False, True], ids=["at least once", "exactly once"])
def test_mirror_meets_its_guarantee_through_kills_and_cuts(seed: int, exactly_once: bool) -> None:
    _run(seed, exactly_once)


@pytest.mark.long
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("exactly_once", [False, True], ids=["at least once", "exactly once"])
def test_mirror_meets_its_guarantee_with_many_seeds(exactly_once: bool) -> None:
    run_seeds("mirror", range(LONG_SEEDS), lambda seed: _run(seed, exactly_once))
