"""Groups of several members on our broker in a simulated world."""

from __future__ import annotations

from collections import Counter
from typing import Any

import trio

import triokafka
from tests.support.simulated import host_broker
from tests.support.waiting import eventually
from triokafka.structs import TopicPartition
from triokafka.testing import Simulation, run_simulation
from triokafka.testing.simulated_world import SimulatedWorld

PARTITIONS = 6
RECORDS = 240
PORT = 9092
QUICK = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 500, "auto_commit_interval_ms": 1_000}


class Group:
    """Members on separate hosts; ``seen`` counts the records that all of them handled."""

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

    def sizes(self) -> list[int]:
        """Return the number of partitions of each member."""
        return sorted(len(member.assignment()) for member in self.members.values())


def start_broker(simulation: Simulation) -> None:
    host_broker(
        simulation,
        num_partitions=PARTITIONS,
        offsets_topic_num_partitions=1,
        group_initial_rebalance_delay_ms=100,
    )


async def produce(simulation: Simulation, count: int) -> None:
    async with triokafka.Producer(
        bootstrap_servers=f"broker:{PORT}", world=simulation.host("producer").world
    ) as producer:
        for number in range(count):
            await producer.send("t", b"%d" % number, partition=number % PARTITIONS)
            if number % 20 == 0:
                await trio.sleep(0.1)


def test_a_new_member_stops_only_the_partitions_that_move() -> None:

    async def main(simulation: Simulation) -> None:
        start_broker(simulation)
        await produce(simulation, RECORDS)
        group = Group(simulation, partition_assignment_strategy=["cooperative-sticky"])
        group.start("a")
        await eventually(lambda: group.sizes() == [6])
        group.start("b")
        await eventually(lambda: group.sizes() == [3, 3])
        assert len(group.revoked) == 3
        group.start("c")
        await eventually(lambda: group.sizes() == [2, 2, 2])
        assert len(group.revoked) == 5
        await eventually(lambda: len(group.seen) == RECORDS)

    run_simulation(main, 1)


def test_a_timeout_that_has_passed_before_the_wait_fails_no_member() -> None:
    """On a busy machine, time passes between two readings of the clock."""

    async def main(simulation: Simulation) -> None:
        start_broker(simulation)
        await produce(simulation, 1)
        world = simulation.host("member").world
        async with triokafka.Consumer("t", bootstrap_servers=f"broker:{PORT}", group_id="g", world=world) as consumer:
            membership = consumer._engine.membership
            assert membership is not None
            await membership.heartbeat_loop._wait_until(world.now() - 1)

    run_simulation(main, 1)
