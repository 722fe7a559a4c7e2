"""Groups with our members and those of other clients: all of them read each other's subscriptions and assignments."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio

import triokafka

PARTITIONS = 6
RECORDS = 300


class Peer:
    """Another client's member in its own thread."""

    def __init__(self, work: Callable[[Peer], None]) -> None:
        self.seen: list[tuple[int, int]] = []
        self.assigned = 0
        self.stop = threading.Event()
        self.failure: BaseException | None = None
        self.thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self.thread.start()

    def _run(self, work: Callable[[Peer], None]) -> None:
        try:
            work(self)
        except BaseException as error:
            self.failure = error

    def end(self) -> None:
        self.stop.set()
        self.thread.join(30)
        assert self.failure is None, self.failure


def confluent(bootstrap: str, topic: str, group: str, strategy: str) -> Callable[[Peer], None]:
    def work(peer: Peer) -> None:
        from confluent_kafka import Consumer

        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": strategy,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
            }
        )
        consumer.subscribe([topic])
        while not peer.stop.is_set():
            message = consumer.poll(0.05)
            peer.assigned = len(consumer.assignment())
            if message is not None and message.error() is None:
                peer.seen.append((message.partition(), message.offset()))
        consumer.close()

    return work


def kafka_python(bootstrap: str, topic: str, group: str, strategy: str) -> Callable[[Peer], None]:
    def work(peer: Peer) -> None:
        from kafka import KafkaConsumer
        from kafka.coordinator.assignors import range as ranges
        from kafka.coordinator.assignors import roundrobin
        from kafka.coordinator.assignors.sticky import sticky_assignor

        strategies = {
            "range": ranges.RangePartitionAssignor,
            "roundrobin": roundrobin.RoundRobinPartitionAssignor,
            "sticky": sticky_assignor.StickyPartitionAssignor,
        }
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            partition_assignment_strategy=[strategies[strategy]],
            session_timeout_ms=6_000,
            heartbeat_interval_ms=500,
        )
        while not peer.stop.is_set():
            # It may miss an assignment that arrives just when this timeout ends, so the timeout is long.
            for records in consumer.poll(1_000).values():
                for record in records:
                    peer.seen.append((record.partition, record.offset))
            peer.assigned = len(consumer.assignment())
        consumer.close()

    return work


def aiokafka(bootstrap: str, topic: str, group: str, strategy: str) -> Callable[[Peer], None]:
    async def main(peer: Peer) -> None:
        from aiokafka import AIOKafkaConsumer
        from aiokafka.coordinator.assignors import range as ranges
        from aiokafka.coordinator.assignors import roundrobin
        from aiokafka.coordinator.assignors.sticky import sticky_assignor

        strategies = {
            "range": ranges.RangePartitionAssignor,
            "roundrobin": roundrobin.RoundRobinPartitionAssignor,
            "sticky": sticky_assignor.StickyPartitionAssignor,
        }
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            partition_assignment_strategy=(strategies[strategy],),
            session_timeout_ms=6_000,
            heartbeat_interval_ms=500,
        )
        await consumer.start()
        while not peer.stop.is_set():
            for records in (await consumer.getmany(timeout_ms=50)).values():
                for record in records:
                    peer.seen.append((record.partition, record.offset))
            peer.assigned = len(consumer.assignment())
        await consumer.stop()

    return lambda peer: asyncio.run(main(peer))


@pytest.mark.parametrize(
    ("other", "strategy"),
    [
        (confluent, "range"),
        (confluent, "roundrobin"),
        (confluent, "cooperative-sticky"),
        (kafka_python, "range"),
        (kafka_python, "roundrobin"),
        (kafka_python, "sticky"),
        (aiokafka, "range"),
        (aiokafka, "roundrobin"),
        (aiokafka, "sticky"),
    ],
)
async def test_a_mixed_group_shares_the_topic(
    bootstrap: str, topic: str, group: str, other: Any, strategy: str
) -> None:
    """Each client is the leader once, as the first member of the group."""
    async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([triokafka.NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)])
    async with triokafka.Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(RECORDS):
            await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
    end = RECORDS
    for ours_first in (True, False):
        end += RECORDS
        group_id = f"{group}-{ours_first}"
        seen: set[tuple[int, int]] = set()
        consumer = triokafka.Consumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group_id,
            auto_offset_reset="earliest",
            partition_assignment_strategy=[strategy],
            session_timeout_ms=6_000,
            heartbeat_interval_ms=500,
        )
        peer = None if ours_first else Peer(other(bootstrap, topic, group_id, strategy))
        with trio.fail_after(90):
            while peer is not None and peer.assigned < PARTITIONS:
                assert peer.failure is None, peer.failure
                await trio.sleep(0.05)
            async with consumer:
                while True:
                    for records in (await consumer.poll(timeout_ms=50)).values():
                        seen.update((record.partition, record.offset) for record in records)
                    if peer is None and len(consumer.assignment()) == PARTITIONS:
                        peer = Peer(other(bootstrap, topic, group_id, strategy))
                    if peer is not None and peer.failure is not None:
                        raise peer.failure
                    if peer is not None and (len(consumer.assignment()), peer.assigned) == (3, 3):
                        break
                async with triokafka.Producer(bootstrap_servers=bootstrap) as producer:
                    for number in range(RECORDS):
                        await producer.send(topic, b"more", partition=number % PARTITIONS)
                while len(seen | set(peer.seen)) < end:
                    for records in (await consumer.poll(timeout_ms=50)).values():
                        seen.update((record.partition, record.offset) for record in records)
        assert len({key[0] for key in seen}) + len({key[0] for key in peer.seen}) >= PARTITIONS
        await trio.to_thread.run_sync(peer.end)
