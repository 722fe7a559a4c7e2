"""A mirror whose source loses mirrored records because an out-of-sync replica becomes the leader. In virtual time.

The target has every later record, and no record twice, and the mirror logs the truncation.
"""

from __future__ import annotations

import logging

import pytest
import trio

import triokafka
from tests.simulation.test_mirror import Machine
from tests.support.read_back import read_all
from tests.support.simulated import current_simulation, simulated
from tests.support.simulated_cluster import SimulatedCluster
from triokafka.mirror import Mirror, MirrorOptions
from triokafka.mirror.lag import read_positions
from triokafka.structs import TopicPartition

ORDERS = TopicPartition("orders", 0)
REMOTE = TopicPartition("west.orders", 0)
BOTH, ONE = 10, 5


class Scene:
    """West with three nodes, of which the first two have the replicas of a partition; east; a mirror between them."""

    def __init__(self, *, exactly_once: bool) -> None:
        self.simulation = current_simulation()
        self.west = SimulatedCluster(self.simulation)
        self.east = Machine(self.simulation, "east")
        self.options = MirrorOptions(
            source={"bootstrap_servers": self.west.bootstrap},
            target={"bootstrap_servers": self.east.bootstrap},
            source_alias="west",
            target_alias="east",
            topics=("orders",),
            exactly_once=exactly_once,
            offset_syncs="target",
            sync_group_offsets=True,
            commit_interval_ms=100,
        )

    async def start(self) -> None:
        self.west.start()
        await self.west.wait_unfenced()
        configs = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
        async with self.west.admin() as admin:
            await admin.create_topics([triokafka.NewTopic("orders", configs=configs, assignments={0: [1, 2]})])
        await self.west.wait_in_sync({"orders": 1})

    async def write(self, values: list[bytes]) -> None:
        async with triokafka.Producer(
            bootstrap_servers=self.west.bootstrap, world=self.west.client_world(), delivery_timeout_ms=60_000
        ) as producer:
            for value in values:
                await (await producer.send("orders", value, partition=0))

    async def lose_the_end(self) -> None:
        """The second replica lacks the last records, and becomes the leader because the first one crashes."""
        _, second, third = self.west.nodes
        await self.write(numbers("both", BOTH))
        await second.kill()
        await third.wait_for(lambda image: image.topics["orders"].partitions[0].isr == (1,))
        await self.write(numbers("lost", ONE))

    async def elect_the_other(self) -> None:
        first, second, third = self.west.nodes
        await first.kill()
        second.start()
        await third.wait_for(lambda image: image.topics["orders"].partitions[0].leader == 2)

    def mirror(self) -> Mirror:
        return Mirror(self.options, world=self.simulation.host("mirror").world)

    async def copied(self) -> list[bytes | None]:
        world = self.simulation.host("reader").world
        found = await read_all(self.east.bootstrap, {"west.orders": 1}, world=world, isolation_level="read_committed")
        return [value for _, value in found[REMOTE]]

    async def wait_stored(self, offset: int) -> None:
        """Wait until the stored progress has reached this offset."""
        target, world = {"bootstrap_servers": self.east.bootstrap}, self.simulation.host("reader").world
        with trio.fail_after(120):
            while True:
                found = await read_positions(target, "west", world=world)
                if ORDERS in found and found[ORDERS].next_offset == offset:
                    return
                await trio.sleep(0.1)


def numbers(name: str, count: int) -> list[bytes]:
    return [b"%s %d" % (name.encode(), number) for number in range(count)]


@pytest.mark.parametrize(
    ("exactly_once", "goes_on", "others"),
    [(False, True, 8), (True, True, 3), (False, False, 3), (True, False, 8), (False, False, 5)],
)
@simulated
async def test_records_at_the_offsets_of_lost_ones_are_mirrored_once(
    exactly_once: bool, goes_on: bool, others: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The new log becomes longer than the old one or not, and the mirror runs meanwhile or is restarted."""
    caplog.set_level(logging.WARNING, "triokafka.mirror")
    scene = Scene(exactly_once=exactly_once)
    await scene.start()
    await scene.lose_the_end()
    mirror = scene.mirror()
    if goes_on:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(mirror.run)
            await scene.wait_stored(BOTH + ONE)
            await scene.elect_the_other()
            await scene.write(numbers("other", others))
            await scene.wait_stored(BOTH + others)
            truncated = (await mirror.status()).truncated
            nursery.cancel_scope.cancel()
    else:
        with trio.fail_after(120):
            await mirror.run(until_caught_up=True)
        await scene.elect_the_other()
        await scene.write(numbers("other", others))
        mirror = scene.mirror()
        with trio.fail_after(120):
            await mirror.run(until_caught_up=True)
        truncated = (await mirror.status()).truncated
    expected = numbers("both", BOTH) + numbers("lost", ONE) + numbers("other", others)
    assert await scene.copied() == expected
    assert truncated == ONE
    assert "lost offsets 10 to 14 after they were mirrored" in caplog.text
    await scene.west.stop()


@simulated
async def test_offsets_of_groups_after_a_truncation_are_those_of_the_new_records() -> None:
    scene = Scene(exactly_once=False)
    await scene.start()
    await scene.lose_the_end()
    await scene.mirror().run(until_caught_up=True)
    await scene.elect_the_other()
    await scene.write(numbers("other", 8))
    async with scene.west.admin() as admin:
        await admin.alter_group_offsets("billing", {ORDERS: BOTH + 2})
    await scene.mirror().run(until_caught_up=True)
    async with triokafka.AdminClient(bootstrap_servers=scene.east.bootstrap, world=scene.west.client_world()) as admin:
        found = await admin.list_group_offsets("billing")
    assert (await scene.copied())[found[REMOTE].offset] == b"other 2"
    await scene.west.stop()
