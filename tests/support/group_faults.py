"""A consumer group in the simulated world, under one of three rebalance protocols, and a schedule of faults.

The seed chooses the members, their way of reading, auto-commit or manual commits, and the faults: members die, freeze
as a process or in their user's loop, are cut off, leave, return; the broker restarts or stops; connections break. In
every run:

- every acknowledged record is processed at least once;
- a committed offset never decreases, and is never ahead of the processed records;
- within the rebalance timeout after the last fault every partition has exactly one owner again, evenly balanced;
- and records written after that are read and committed.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import trio

import triokafka
from tests.support.simulated import host_broker
from triokafka.errors import KafkaError, MaxPollIntervalExceededError
from triokafka.structs import TopicPartition
from triokafka.testing import Simulation
from triokafka.testing.simulated_world import SimulatedWorld

PARTITIONS: Final = 6
RECORDS: Final = 240
PORT: Final = 9092
EVERYTHING: Final = [TopicPartition("t", number) for number in range(PARTITIONS)]
SESSION_MS: Final = 6_000
REBALANCE_TIMEOUT_MS: Final = 20_000
"""Also the maximum time that a member's user may be busy."""

Protocol = Literal["eager", "cooperative", "consumer"]
PROTOCOLS: Final[Mapping[Protocol, Mapping[str, Any]]] = {
    "eager": {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 500},
    "cooperative": {
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": 500,
        "partition_assignment_strategy": ["cooperative-sticky"],
    },
    "consumer": {"group_protocol": "consumer"},
}


class Ledger:
    """The written and processed records, and the committed offsets that the coordinator returned."""

    def __init__(self) -> None:
        self.written = [0] * PARTITIONS
        self._next = [0] * PARTITIONS
        self._ahead: list[set[int]] = [set() for _ in range(PARTITIONS)]
        self.committed = [0] * PARTITIONS

    def handled(self, partition: int, offset: int) -> None:
        """Record that the user has processed a record."""
        ahead = self._ahead[partition]
        if offset >= self._next[partition]:
            ahead.add(offset)
        while self._next[partition] in ahead:
            ahead.remove(self._next[partition])
            self._next[partition] += 1

    @property
    def all_handled(self) -> bool:
        """Whether every written record was processed, by any member."""
        return self._next == self.written

    @property
    def all_committed(self) -> bool:
        """Whether the group has committed every written record."""
        return self.committed == self.written

    def sees(self, partition: int, committed: int) -> None:
        """Check and record the committed offset that the coordinator returned."""
        before, handled = self.committed[partition], self._next[partition]
        assert committed >= before, f"the position of partition {partition} moved back from {before} to {committed}"
        assert committed <= handled, f"partition {partition} is committed at {committed}, handled below {handled} only"
        self.committed[partition] = committed


class Group:
    """Members on separate hosts."""

    def __init__(self, simulation: Simulation, ledger: Ledger, chance: random.Random, options: Mapping[str, Any]):
        self.simulation = simulation
        self.ledger = ledger
        self.members: dict[str, triokafka.Consumer] = {}
        self.frozen: dict[str, SimulatedWorld | None] = {}
        self._chance = chance
        self._options: dict[str, Any] = {
            "bootstrap_servers": f"broker:{PORT}",
            "group_id": "g",
            "auto_offset_reset": "earliest",
            "auto_commit_interval_ms": 1_000,
            "request_timeout_ms": 3_000,
            "default_api_timeout_ms": 600_000,
            "max_poll_interval_ms": REBALANCE_TIMEOUT_MS,
            **options,
        }

    @property
    def down(self) -> list[str]:
        """Return the hosts without a member."""
        return [name for name in ("m0", "m1", "m2", "m3") if self.simulation.host(name)._scope is None]

    def start(self, name: str) -> None:
        """Start a member on a host that has none."""
        reads = self._chance.choice([self._iterate, self._poll_and_commit, self._in_parallel])

        async def process(world: SimulatedWorld) -> None:
            automatic = reads == self._iterate
            async with triokafka.Consumer("t", world=world, enable_auto_commit=automatic, **self._options) as consumer:
                self.members[name] = consumer
                try:
                    while True:
                        try:
                            await reads(name, consumer)
                        except MaxPollIntervalExceededError:
                            continue
                finally:
                    self.members.pop(name, None)

        self.simulation.host(name).start(process)

    async def _iterate(self, name: str, consumer: triokafka.Consumer) -> None:
        async for record in consumer:
            await self._handle(name, record)

    async def _poll_and_commit(self, name: str, consumer: triokafka.Consumer) -> None:
        while True:
            for records in (await consumer.poll(timeout_ms=1_000, max_records=10)).values():
                for record in records:
                    await self._handle(name, record)
            try:
                await consumer.commit(timeout_ms=10_000)
            except KafkaError:
                continue  # the new owner of the partitions processes them again

    async def _in_parallel(self, name: str, consumer: triokafka.Consumer) -> None:
        async def handle(record: triokafka.ConsumerRecord) -> None:
            await self._handle(name, record)

        await triokafka.process_partitions(consumer, handle, max_records_in_hand=20)

    async def _handle(self, name: str, record: triokafka.ConsumerRecord) -> None:
        await trio.sleep(0.01)
        while name in self.frozen:
            await trio.sleep(0.5)
        self.ledger.handled(record.partition, record.offset)

    async def kill(self, name: str) -> None:
        """End the member's process as SIGKILL does."""
        self.frozen.pop(name, None)
        await self.simulation.host(name).kill()

    def freeze(self, name: str, *, process: bool) -> None:
        """Block the user's loop, and with ``process`` the whole process (SIGSTOP)."""
        world = self.simulation.host(name).world if process else self.frozen.get(name)
        self.frozen[name] = world
        if world is not None:
            world.pause()

    def thaw(self) -> None:
        """Resume all members."""
        for world in self.frozen.values():
            if world is not None:
                world.resume()
        self.frozen.clear()

    @property
    def stable(self) -> bool:
        """Whether all are in the group, every partition has one owner, and the counts differ by at most one."""
        held = [member.assignment() for member in self.members.values()]
        sizes = [len(partitions) for partitions in held] or [0]
        settled = all(member.health().state == "in the group" for member in self.members.values())
        return settled and sorted(itertools.chain(*held)) == EVERYTHING and max(sizes) - min(sizes) <= 1

    def describe(self) -> str:
        """Return the state of each member, for the message of a failed check."""
        return "; ".join(f"{name}: {member.health()}" for name, member in self.members.items())


def start_broker(simulation: Simulation) -> None:
    """Start the broker's process on its host."""
    host_broker(
        simulation,
        num_partitions=PARTITIONS,
        offsets_topic_num_partitions=1,
        group_initial_rebalance_delay_ms=100,
        group_consumer_session_timeout_ms=SESSION_MS,
        group_consumer_heartbeat_interval_ms=500,
        group_consumer_min_session_timeout_ms=1_000,
        group_consumer_min_heartbeat_interval_ms=100,
    )


async def produce(simulation: Simulation, ledger: Ledger, count: int) -> None:
    """Write records until all are acknowledged, and record them in the ledger."""
    async with triokafka.Producer(
        bootstrap_servers=f"broker:{PORT}",
        world=simulation.host("producer").world,
        request_timeout_ms=3_000,
        delivery_timeout_ms=600_000,
        max_block_ms=600_000,
        close_timeout_ms=600_000,
    ) as producer:
        for number in range(count):
            delivery = await producer.send("t", b"%d" % number, partition=number % PARTITIONS)
            metadata = await delivery
            ledger.written[metadata.partition] = metadata.offset + 1
            if number % 10 == 0:
                await trio.sleep(0.2)


async def watch(simulation: Simulation, ledger: Ledger) -> None:
    """Look up the committed offsets in a loop."""
    async with triokafka.Consumer(
        bootstrap_servers=f"broker:{PORT}",
        group_id="g",
        world=simulation.host("watcher").world,
        request_timeout_ms=2_000,
        metadata_recovery_strategy="none",
    ) as watcher:
        while True:
            try:
                committed = await watcher.committed(EVERYTHING, timeout_ms=2_000)
            except KafkaError:
                continue
            for partition, position in committed.items():
                if position is not None:
                    ledger.sees(partition.partition, position.offset)
            await trio.sleep(0.25)


async def until(condition: Callable[[], bool], seconds: float, describe: Callable[[], str]) -> None:
    """Wait for a condition; if it is not true in time, fail with the text that ``describe`` returns."""
    with trio.move_on_after(seconds):
        while not condition():
            await trio.sleep(0.05)
        return
    raise AssertionError(f"not within {seconds:.0f} s: {describe()}")


async def _fault(simulation: Simulation, group: Group, chance: random.Random) -> None:
    """Inject one fault for a while."""
    members = sorted(group.members)
    kind = chance.choice(
        ["die", "die", "freeze", "stop", "cut off", "restart", "stall", "break", "join", "join", "leave"]
    )
    if kind == "die" and members:
        await group.kill(chance.choice(members))
    elif kind in ("freeze", "stop") and members:
        group.freeze(chance.choice(members), process=kind == "stop")
        await trio.sleep(chance.choice([1, 4, 9, 25]))
        if chance.random() < 0.7:  # otherwise the fault lasts during the next one
            group.thaw()
    elif kind == "cut off" and members:
        simulation.network.partition(chance.choice(members), "broker")
        await trio.sleep(chance.uniform(0, 9))
        if chance.random() < 0.7:
            simulation.network.heal()
    elif kind == "restart":
        await simulation.host("broker").kill()
        await trio.sleep(chance.choice([0, 1, 4, 12]))
        start_broker(simulation)
    elif kind == "stall":
        world = simulation.host("broker").world
        world.pause()
        await trio.sleep(chance.choice([0.5, 2, 5, 9]))
        world.resume()
    elif kind == "break":
        simulation.network.cut("broker")
    elif kind == "leave" and len(members) > 1:
        name = chance.choice(members)
        del group.members[name]
        leaver = simulation.host(name)._scope
        if leaver is not None:
            leaver.cancel()
    elif group.down:
        group.start(chance.choice(group.down))


async def faults(simulation: Simulation, protocol: Protocol) -> None:
    """Run one schedule of faults, chosen by the simulation's seed."""
    chance = random.Random(f"{simulation.seed}/{protocol}")
    options = dict(PROTOCOLS[protocol])
    if protocol == "eager":
        options["partition_assignment_strategy"] = [chance.choice(["range", "roundrobin", "sticky"])]
    elif protocol == "consumer":
        options["group_remote_assignor"] = chance.choice(["uniform", "range", None])
    ledger = Ledger()
    group = Group(simulation, ledger, chance, options)
    start_broker(simulation)
    async with triokafka.AdminClient(bootstrap_servers=f"broker:{PORT}", world=simulation.host("admin").world) as admin:
        await admin.create_topics([triokafka.NewTopic("t", PARTITIONS, 1)])
    simulation.nursery.start_soon(watch, simulation, ledger)
    async with trio.open_nursery() as producing:
        producing.start_soon(produce, simulation, ledger, RECORDS)
        for name in group.down[: chance.randrange(1, 4)]:
            group.start(name)
        for _ in range(chance.randrange(3, 9)):
            await trio.sleep(chance.choice([0, 0.2, 1, 4]) * chance.random())
            await _fault(simulation, group, chance)
        group.thaw()
        simulation.network.heal()
        if not group.members:
            await until(lambda: bool(group.down), 60, group.describe)
            group.start(group.down[0])
        # The last fault is over, including a member's own start.
        await trio.sleep(REBALANCE_TIMEOUT_MS / 1000)
        assert group.stable, group.describe()
    await until(lambda: ledger.all_handled, 60, group.describe)
    await produce(simulation, ledger, PARTITIONS)
    await until(lambda: ledger.all_handled and ledger.all_committed, 20, group.describe)
    assert group.stable, group.describe()
    for name, member in group.members.items():
        assert member.health().healthy, f"{name}: {member.health()}"


if __name__ == "__main__":
    import logging
    import sys

    from triokafka.testing import run_simulation

    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    run_simulation(lambda simulation: faults(simulation, sys.argv[1]), int(sys.argv[2]))  # type: ignore[arg-type]
