"""The cost of a rebalance for a group, in counts and in virtual time: how it grows, and which partitions it stops."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import pytest
import trio

import triokafka
from benchmarks.rebalance import simulated
from benchmarks.rebalance_play import MODES
from triokafka import TopicPartition
from triokafka.testing import Simulation, run_simulation, running_broker

PARTITIONS = 124
MEMBERS = 30
PERIOD = 0.5
"""Seconds between two records of a partition."""


@pytest.mark.parametrize("mode", MODES)
def test_the_cost_per_member_does_not_grow_with_the_group(mode: str) -> None:
    """Messages and bytes grow at most linearly with the members; only moving partitions stop, or all of them
    if eager.
    """
    costs = {members: simulated(mode, members, partitions=120) for members in (4, 12, 36)}
    for small, large in pairwise(costs):
        assert costs[large].messages / large <= 1.5 * costs[small].messages / small, costs
        assert costs[large].size / large <= 1.5 * costs[small].size / small, costs
    for members, cost in costs.items():
        if mode == "eager":
            assert (cost.stopped, cost.members_stopped) == (120, members)
        else:
            assert cost.stopped == cost.must_move == 120 // (members + 1), costs
            assert cost.members_stopped == 0


class WrittenTopic:
    """A topic that is written to all the time, and the time at which each member read each record."""

    def __init__(self, simulation: Simulation) -> None:
        self.world = simulation.host("clients").world
        self.read: dict[TopicPartition, list[tuple[float, int, str]]] = defaultdict(list)
        self.holders: dict[str, frozenset[TopicPartition]] = {}
        self.written = 0

    async def write(self) -> None:
        async with triokafka.Producer(bootstrap_servers="broker:9092", world=self.world) as producer:
            while True:
                for number in range(PARTITIONS):
                    await producer.send("t", b"x", partition=number)
                await producer.flush()
                self.written += 1
                await trio.sleep(PERIOD)

    async def member(self, name: str) -> None:
        async with triokafka.Consumer(
            "t",
            bootstrap_servers="broker:9092",
            world=self.world,
            group_id="g",
            client_id=name,
            heartbeat_interval_ms=2_500 + int(name[-2:], 36) * 381 % 1_000,
            auto_offset_reset="earliest",
            partition_assignment_strategy=["cooperative-sticky"],
        ) as consumer:
            while True:
                for partition, records in (await consumer.poll(timeout_ms=250)).items():
                    now = self.world.now()
                    self.read[partition].extend((now, record.offset, name) for record in records)
                self.holders[name] = frozenset(consumer.assignment())

    async def shared(self, members: int) -> None:
        while sorted(map(len, self.holders.values())) != sorted(
            PARTITIONS // members + (number < PARTITIONS % members) for number in range(members)
        ):
            await trio.sleep(PERIOD)


def test_one_more_member_of_thirty_stops_only_the_partitions_that_move() -> None:
    """KIP-429.

    The same members read all other partitions throughout the rebalance, and no record is read twice or skipped.
    """

    async def run(simulation: Simulation) -> tuple[WrittenTopic, float, dict[str, frozenset[TopicPartition]]]:
        world = simulation.host("broker").world
        async with running_broker(world=world, listeners=("PLAINTEXT://broker:9092",)):
            topic = WrittenTopic(simulation)
            async with triokafka.AdminClient(bootstrap_servers="broker:9092", world=topic.world) as admin:
                await admin.create_topics([triokafka.NewTopic("t", num_partitions=PARTITIONS, replication_factor=1)])
            with trio.fail_after(120):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(topic.write)
                    for number in range(MEMBERS):
                        nursery.start_soon(topic.member, f"member {number}")
                    await topic.shared(MEMBERS)
                    await trio.sleep(12)  # until heartbeats no longer coincide
                    before, since = dict(topic.holders), topic.world.now()
                    nursery.start_soon(topic.member, "one more")
                    await topic.shared(MEMBERS + 1)
                    await trio.sleep(3)
                    nursery.cancel_scope.cancel()
            return topic, since, before

    topic, since, before = run_simulation(run, seed=3)
    moved = topic.holders["one more"]
    assert len(moved) == PARTITIONS // (MEMBERS + 1)
    for name, held in before.items():
        assert topic.holders[name] == held - moved
    for partition, read in topic.read.items():
        offsets = [offset for _, offset, _ in read]
        assert offsets == list(range(len(offsets))) and len(offsets) > topic.written - 10
        if partition not in moved:
            times = [time for time, _, _ in read if time > since - 1]
            assert len({name for time, _, name in read if time > since - 1}) == 1
            assert max(later - sooner for sooner, later in pairwise(times)) < 4 * PERIOD, partition
