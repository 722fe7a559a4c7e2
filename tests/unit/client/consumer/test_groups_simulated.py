"""Groups of several members on our broker in a simulated world, one schedule of faults per seed."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
import trio

import triokafka
from triokafka.structs import TopicPartition
from triokafka.testing import Simulation, run_simulation, running_broker
from triokafka.testing.world import SimulatedWorld

PARTITIONS = 6
RECORDS = 240
PORT = 9092
QUICK = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 500, "auto_commit_interval_ms": 1_000}


class Group:
    """Members on hosts of their own; ``seen`` counts what all of them handled."""

    def __init__(self, simulation: Simulation, **options: Any) -> None:
        self.simulation = simulation
        self.options: dict[str, Any] = {**QUICK, "auto_offset_reset": "earliest", **options}
        self.seen: Counter[tuple[int, int]] = Counter()
        self.members: dict[str, triokafka.Consumer] = {}
        self.revoked: list[TopicPartition] = []

    def start(self, name: str) -> None:
        """Start a member on the host ``name``."""
        group = self

        class Listener(triokafka.ConsumerRebalanceListener):
            def on_partitions_revoked(self, revoked: Any) -> None:
                group.revoked.extend(revoked)

        async def process(world: SimulatedWorld) -> None:
            async with triokafka.Consumer(
                bootstrap_servers=f"broker:{PORT}", group_id="g", world=world, **self.options
            ) as consumer:
                consumer.subscribe("t", listener=Listener())
                self.members[name] = consumer
                async for record in consumer:
                    self.seen[record.partition, record.offset] += 1
                    await trio.sleep(0.01)

        self.simulation.host(name).start(process)

    async def kill(self, name: str) -> None:
        """SIGKILL to a member."""
        del self.members[name]
        await self.simulation.host(name).kill()

    def owned(self) -> list[TopicPartition]:
        """What all members hold together; a partition that two of them hold is there twice."""
        return sorted(partition for member in self.members.values() for partition in member.assignment())

    def sizes(self) -> list[int]:
        """How many partitions each member holds."""
        return sorted(len(member.assignment()) for member in self.members.values())


def start_broker(simulation: Simulation) -> None:
    async def process(world: SimulatedWorld) -> None:
        async with running_broker(
            world=world,
            listeners=f"PLAINTEXT://broker:{PORT}",
            num_partitions=PARTITIONS,
            offsets_topic_num_partitions=1,
            group_initial_rebalance_delay_ms=100,
        ):
            await trio.sleep_forever()

    simulation.host("broker").start(process)


async def produce(simulation: Simulation, count: int) -> None:
    async with triokafka.Producer(
        bootstrap_servers=f"broker:{PORT}", world=simulation.host("producer").world
    ) as producer:
        for number in range(count):
            await producer.send("t", b"%d" % number, partition=number % PARTITIONS)
            if number % 20 == 0:
                await trio.sleep(0.1)


async def until(condition: Any, seconds: float = 120) -> None:
    with trio.fail_after(seconds):
        while not condition():
            await trio.sleep(0.05)


def test_a_new_member_stops_only_the_partitions_that_move() -> None:
    """(`client/MOD-17`)"""

    async def main(simulation: Simulation) -> None:
        start_broker(simulation)
        await produce(simulation, RECORDS)
        group = Group(simulation, partition_assignment_strategy=["cooperative-sticky"])
        group.start("a")
        await until(lambda: group.sizes() == [6])
        group.start("b")
        await until(lambda: group.sizes() == [3, 3])
        assert len(group.revoked) == 3
        group.start("c")
        await until(lambda: group.sizes() == [2, 2, 2])
        assert len(group.revoked) == 5
        await until(lambda: len(group.seen) == RECORDS)

    run_simulation(main, 1)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_dies_every_record_is_read_and_the_group_settles(seed: int) -> None:
    """At least once, and no committed offset moves back."""

    async def main(simulation: Simulation) -> None:
        chance = random.Random(seed)
        strategy = chance.choice(["range", "sticky", "cooperative-sticky"])
        group = Group(simulation, partition_assignment_strategy=[strategy])
        start_broker(simulation)
        simulation.nursery.start_soon(produce, simulation, RECORDS)
        names = [f"m{number}" for number in range(4)]
        group.start(names[0])
        committed: dict[TopicPartition, int] = {}
        for _ in range(chance.randrange(3, 7)):
            await trio.sleep(chance.uniform(0.1, 4))
            down = [name for name in names if name not in group.members and simulation.host(name)._scope is None]
            what = chance.randrange(4)
            if what == 0 and len(group.members) > 1:
                await group.kill(chance.choice(list(group.members)))
            elif what == 1:
                await simulation.host("broker").kill()
                await trio.sleep(chance.uniform(0, 3))
                start_broker(simulation)
            elif what == 2 and group.members:
                client = chance.choice(list(group.members))
                simulation.network.partition(client, "broker")
                await trio.sleep(chance.uniform(0, 9))
                simulation.network.heal()
            elif down:
                group.start(chance.choice(down))
        if not group.members:
            group.start(chance.choice(names))
        await until(lambda: len(group.seen) == RECORDS)
        everything = [TopicPartition("t", number) for number in range(PARTITIONS)]
        await until(lambda: group.owned() == everything and max(group.sizes()) - min(group.sizes()) <= 1)
        async with triokafka.Consumer(
            bootstrap_servers=f"broker:{PORT}", group_id="g", world=simulation.host("watcher").world
        ) as watcher:
            for _ in range(3):
                await trio.sleep(2)
                now = await watcher.committed(everything)
                for partition, offset in now.items():
                    if offset is not None:
                        assert committed.get(partition, 0) <= offset.offset <= RECORDS // PARTITIONS
                        committed[partition] = offset.offset

    run_simulation(main, seed)


def test_a_wait_that_is_over_before_it_begins_fails_no_member() -> None:
    """On a busy machine time passes between two looks at the clock."""

    async def main(simulation: Simulation) -> None:
        start_broker(simulation)
        await produce(simulation, 1)
        world = simulation.host("member").world
        async with triokafka.Consumer("t", bootstrap_servers=f"broker:{PORT}", group_id="g", world=world) as consumer:
            membership = consumer._engine.membership
            assert membership is not None
            await membership._wait_until(world.now() - 1)

    run_simulation(main, 1)
