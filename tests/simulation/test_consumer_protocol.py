"""Groups of several members under the consumer protocol (KIP-848) on our broker in a simulated world."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
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
EVERYTHING = [TopicPartition("t", number) for number in range(PARTITIONS)]


class Group:
    """Members on separate hosts; ``seen`` counts the records that all of them handled."""

    def __init__(self, simulation: Simulation, **options: Any) -> None:
        self.simulation = simulation
        self.options: dict[str, Any] = {
            "group_protocol": "consumer",
            "auto_offset_reset": "earliest",
            "auto_commit_interval_ms": 1_000,
            "request_timeout_ms": 3_000,
            "default_api_timeout_ms": 300_000,
            **options,
        }
        self.seen: Counter[tuple[int, int]] = Counter()
        self.members: dict[str, triokafka.Consumer] = {}
        self.revoked: list[TopicPartition] = []
        self.frozen: set[str] = set()
        self.starts = 0

    def start(self, name: str, **options: Any) -> None:
        """Start a member on the host ``name``."""
        group = self
        self.starts += 1

        class Listener(triokafka.ConsumerRebalanceListener):
            def on_partitions_revoked(self, revoked: Any) -> None:
                group.revoked.extend(revoked)

        async def process(world: SimulatedWorld) -> None:
            async with triokafka.Consumer(
                bootstrap_servers=f"broker:{PORT}", group_id="g", world=world, **{**self.options, **options}
            ) as consumer:
                consumer.subscribe("t", listener=Listener())
                self.members[name] = consumer
                while True:
                    try:
                        async for record in consumer:
                            self.seen[record.partition, record.offset] += 1
                            await trio.sleep(0.01)
                            while name in self.frozen:
                                await trio.sleep(1)
                    except triokafka.errors.MaxPollIntervalExceededError:
                        continue

        self.simulation.host(name).start(process)

    async def kill(self, name: str) -> None:
        """Kill a member's process as SIGKILL does."""
        del self.members[name]
        await self.simulation.host(name).kill()

    def owned(self) -> list[TopicPartition]:
        """Return the partitions of all members; a partition with two owners is included twice."""
        return sorted(partition for member in self.members.values() for partition in member.assignment())

    def sizes(self) -> list[int]:
        """Return the number of partitions of each member."""
        return sorted(len(member.assignment()) for member in self.members.values())


def start_broker(simulation: Simulation) -> None:
    host_broker(
        simulation,
        num_partitions=PARTITIONS,
        offsets_topic_num_partitions=1,
        group_consumer_heartbeat_interval_ms=500,
        group_consumer_session_timeout_ms=6_000,
        group_consumer_min_session_timeout_ms=1_000,
        group_consumer_min_heartbeat_interval_ms=100,
    )


async def produce(simulation: Simulation, count: int, first: int = 0) -> None:
    async with triokafka.Producer(
        bootstrap_servers=f"broker:{PORT}", world=simulation.host("producer").world
    ) as producer:
        for number in range(first, first + count):
            await producer.send("t", b"%d" % number, partition=number % PARTITIONS)
            if number % 20 == 0:
                await trio.sleep(0.1)


@pytest.mark.parametrize("assignor", ["range", None])
def test_a_new_member_stops_only_the_partitions_that_move(assignor: str | None) -> None:

    async def main(simulation: Simulation) -> None:
        start_broker(simulation)
        await produce(simulation, RECORDS)
        group = Group(simulation, group_remote_assignor=assignor)
        group.start("a")
        await eventually(lambda: group.sizes() == [6])
        group.start("b")
        await eventually(lambda: group.sizes() == [3, 3])
        assert len(group.revoked) == 3
        await produce(simulation, RECORDS, RECORDS)
        await eventually(lambda: len(group.seen) == 2 * RECORDS)
        assert set(group.seen.values()) == {1}  # no record was read twice
        for name in ("c", "d", "e"):
            group.start(name)
        await eventually(lambda: group.sizes() == [1, 1, 1, 1, 2])
        await group.kill("a")
        await eventually(lambda: group.owned() == EVERYTHING)

    run_simulation(main, 1)


def test_members_survive_a_restart_of_the_broker_and_read_no_record_twice() -> None:
    """Epochs and assignments are records in the log, so that no member has to rejoin."""

    async def main(simulation: Simulation) -> None:
        start_broker(simulation)
        await produce(simulation, RECORDS)
        group = Group(simulation)
        for name in ("a", "b", "c"):
            group.start(name)
        await eventually(lambda: group.sizes() == [2, 2, 2] and len(group.seen) == RECORDS)
        before = {name: (member.assignment(), member.health().member_id) for name, member in group.members.items()}
        read = group.seen.copy()
        await simulation.host("broker").kill()
        await trio.sleep(3)
        start_broker(simulation)
        await produce(simulation, RECORDS, RECORDS)
        await eventually(lambda: len(group.seen) == 2 * RECORDS)
        assert {
            name: (member.assignment(), member.health().member_id) for name, member in group.members.items()
        } == before
        assert {count for where, count in group.seen.items() if where not in read} == {1}

    run_simulation(main, 2)


def test_a_frozen_loop_gives_its_partitions_to_the_others_and_returns() -> None:

    async def main(simulation: Simulation) -> None:
        start_broker(simulation)
        await produce(simulation, RECORDS)
        group = Group(simulation, max_poll_interval_ms=8_000)
        group.start("a")
        group.start("b")
        await eventually(lambda: group.sizes() == [3, 3])
        group.frozen.add("a")
        simulation.nursery.start_soon(produce, simulation, RECORDS, RECORDS)
        await eventually(lambda: len(group.members["b"].assignment()) == 6)
        await eventually(lambda: len(group.seen) == 2 * RECORDS)
        group.frozen.clear()
        await produce(simulation, RECORDS, 2 * RECORDS)
        await eventually(lambda: group.sizes() == [3, 3] and group.owned() == EVERYTHING)
        await eventually(lambda: len(group.seen) == 3 * RECORDS)

    run_simulation(main, 3)


def test_a_crashed_static_member_waits_for_the_end_of_its_session_and_reports_it() -> None:

    async def main(simulation: Simulation) -> None:
        start_broker(simulation)
        await produce(simulation, RECORDS)
        group = Group(simulation)
        group.start("a", group_instance_id="a")
        group.start("b", group_instance_id="b")
        await eventually(lambda: group.sizes() == [3, 3] and len(group.seen) == RECORDS)
        simulation.nursery.start_soon(group.kill, "a")
        group.start("again", group_instance_id="a")
        await trio.sleep(3)
        assert "still belongs to another member" in group.members["again"].health().troubles[0]
        await eventually(lambda: group.sizes() == [3, 3] and group.owned() == EVERYTHING)
        assert group.members["again"].health().healthy

    run_simulation(main, 4)
