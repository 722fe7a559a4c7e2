"""Scenarios of our consumers in groups under the consumer protocol, over real connections, on any broker with short
heartbeats: with librdkafka's consumers, through rolling changes of the protocol, with patterns and static members.

Each scenario takes a bootstrap address, and unused topic and group names.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from confluent_kafka import Consumer

import triokafka
from tests.support.waiting import eventually
from triokafka.structs import TopicPartition

PARTITIONS = 6
RECORDS = 300
TIMEOUT = 60.0
CLASSIC = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 200}
CONSUMER: dict[str, Any] = {"group_protocol": "consumer"}


class Group:
    """Members of one group; ``seen`` counts the records of all of them, ``revoked`` has the partitions revoked of
    each."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.group = group
        self.seen: Counter[tuple[int, int]] = Counter()
        self.members: dict[str, triokafka.Consumer] = {}
        self.revoked: dict[str, list[TopicPartition]] = {}
        self._ends: dict[str, trio.Event] = {}
        self._nursery: trio.Nursery | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run members inside the block; they leave at its end."""
        async with triokafka.AdminClient(bootstrap_servers=self.bootstrap) as admin:
            await admin.create_topics([triokafka.NewTopic(self.topic, PARTITIONS, 1)])
        async with trio.open_nursery() as self._nursery:
            yield
            for name in list(self.members):
                await self.stop(name)

    async def start(self, name: str, pattern: Any = None, **options: Any) -> None:
        """Start a member."""
        assert self._nursery is not None
        await self._nursery.start(self._run, name, pattern, options)

    async def _run(
        self,
        name: str,
        pattern: Any,
        options: dict[str, Any],
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        group = self
        self.revoked[name] = []

        class Listener(triokafka.ConsumerRebalanceListener):
            def on_partitions_revoked(self, revoked: Any) -> None:
                group.revoked[name].extend(revoked)

        async with triokafka.Consumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=200,
            metadata_max_age_ms=1_000,
            **options,
        ) as consumer:
            if pattern is None:
                consumer.subscribe(self.topic, listener=Listener())
            else:
                consumer.subscribe(pattern=pattern, listener=Listener())
            self.members[name] = consumer
            ended = self._ends[name] = trio.Event()
            task_status.started()
            while name in self.members:
                for partition, records in (await consumer.poll(timeout_ms=100)).items():
                    for record in records:
                        self.seen[partition.partition, record.offset] += 1
        ended.set()

    async def stop(self, name: str) -> None:
        """Have a member leave; it commits its processed records."""
        del self.members[name]
        await self._ends[name].wait()

    def sizes(self) -> list[int]:
        """Return the number of partitions of each member."""
        return sorted(len(member.assignment()) for member in self.members.values())

    async def produce(self) -> None:
        """Send ``RECORDS`` more records, evenly over the partitions."""
        async with triokafka.Producer(bootstrap_servers=self.bootstrap) as producer:
            for number in range(RECORDS):
                await producer.send(self.topic, b"%d" % number, partition=number % PARTITIONS)

    async def committed(self) -> list[int]:
        """Return the group's committed offsets by partition."""
        async with triokafka.Consumer(bootstrap_servers=self.bootstrap, group_id=self.group) as watcher:
            found = await watcher.committed([TopicPartition(self.topic, number) for number in range(PARTITIONS)])
        return [0 if offset is None else offset.offset for offset in found.values()]


class Librdkafka(threading.Thread):
    """librdkafka's consumer in a thread, under the consumer protocol."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        super().__init__(daemon=True)
        self.seen: Counter[tuple[int, int]] = Counter()
        self.assigned = 0
        self._stopping = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 100,
            }
        )
        self._consumer.subscribe([topic])
        self.start()

    def run(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(0.05)
            self.assigned = len(self._consumer.assignment())
            if message is not None and not message.error():
                self.seen[message.partition(), message.offset()] += 1
        self._consumer.close()

    def stop(self) -> None:
        """Leave."""
        self._stopping.set()
        self.join(TIMEOUT)
        assert not self.is_alive()


async def beside_librdkafka(bootstrap: str, topic: str, name: str) -> None:
    """Our consumer and librdkafka's share a topic, move partitions to each other, and read no record twice."""
    group = Group(bootstrap, topic, name)
    async with group.running():
        await group.produce()
        await group.start("a", **CONSUMER)
        await eventually(lambda: len(group.seen) == RECORDS, "the first reads everything")
        await group.start("b", **CONSUMER)
        peer = Librdkafka(bootstrap, topic, name)
        try:
            await eventually(lambda: group.sizes() == [2, 2] and peer.assigned == 2, "all have a third")
            await group.produce()
            await eventually(lambda: len(group.seen) + len(peer.seen) == 2 * RECORDS, "both read the rest")
            await group.stop("a")
            await eventually(lambda: group.sizes() == [3] and peer.assigned == 3, "the others take over its partitions")
        finally:
            await trio.to_thread.run_sync(peer.stop)
        await eventually(lambda: group.sizes() == [PARTITIONS], "the last has everything")
        await group.produce()
        await eventually(lambda: len(group.seen) + len(peer.seen) == 3 * RECORDS, "it reads on")
        assert set((group.seen + peer.seen).values()) == {1}
        assert not {where for where in group.seen if where in peer.seen}
    assert await group.committed() == [3 * RECORDS // PARTITIONS] * PARTITIONS


async def upgraded_and_back(bootstrap: str, topic: str, name: str, strategy: str) -> None:
    """Members change to the consumer protocol one by one, and back, while the group reads; no record is skipped."""
    classic = {**CLASSIC, "partition_assignment_strategy": [strategy]}
    group = Group(bootstrap, topic, name)
    total = 0
    before = [0] * PARTITIONS

    async def goes_on(sizes: list[int]) -> None:
        nonlocal total, before
        await eventually(lambda: group.sizes() == sizes, f"the partitions are assigned as {sizes}, not {group.sizes()}")
        await group.produce()
        total += RECORDS
        await eventually(lambda: len(group.seen) == total, "all written records are read")
        now = await group.committed()
        assert all(earlier <= later for earlier, later in zip(before, now, strict=True)), (before, now)
        before = now

    async with group.running():
        for member in ("a", "b", "c"):
            await group.start(member, **classic)
        await goes_on([2, 2, 2])
        for options in (CONSUMER, classic):
            for member in ("a", "b", "c"):
                await group.stop(member)
                await group.start(member, **options)
                await goes_on([2, 2, 2])
        assert all(member.health().healthy for member in group.members.values())


async def with_a_pattern(bootstrap: str, topic: str, name: str) -> None:
    """The coordinator matches topics, including topics created later."""
    group = Group(bootstrap, topic, name)
    async with group.running():
        await group.produce()
        await group.start("a", triokafka.SubscriptionPattern(f"{topic}.*"), **CONSUMER)
        await eventually(lambda: len(group.seen) == RECORDS, "it reads all existing records")
        assert group.members["a"].subscription() == {topic}
        async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics([triokafka.NewTopic(f"{topic}-more", 2, 1)])
        await eventually(lambda: group.sizes() == [PARTITIONS + 2], "it also owns the topics created later")


async def with_static_members(bootstrap: str, topic: str, name: str) -> None:
    """A static member that leaves and returns gets its partitions again; no other member is affected."""
    group = Group(bootstrap, topic, name)
    async with group.running():
        for member in ("a", "b"):
            await group.start(member, group_instance_id=member, **CONSUMER)
        await eventually(lambda: group.sizes() == [3, 3], "both have a half")
        before = group.members["a"].assignment()
        given_up = list(group.revoked["b"])  # half of all, if it was the first
        await group.stop("a")
        await group.start("a", group_instance_id="a", **CONSUMER)
        await eventually(lambda: group.sizes() == [3, 3], "it is back")
        assert group.members["a"].assignment() == before
        assert group.revoked["b"] == given_up
