"""Three processes of triokafka, killed and paused in turn while librdkafka, aiokafka and triokafka write to them.

Every node is broker and controller. Afterwards every acknowledged record is at its offset, no record is in the log
twice or out of order, and all replicas have the same bytes. A failure prints the seed, which repeats the schedule.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition

import triokafka
from tests.interop.client_thread import ClientThread
from tests.interop.mixed_cluster import TIMEOUT, Member, MixedCluster, mixed_cluster

pytestmark = pytest.mark.interop

KILLS = 20
LONG_KILLS = 300
PARTITIONS = 3
STALL = 120.0
"""Seconds without an acknowledgement after which a client counts as stalled."""
DELIVERY_MS = 110_000
PACE = 0.005


class Writer:
    """A client that sends numbered values to its topic in a thread, and its acknowledged values by partition and
    offset.

    A subclass sends; every value that it sends must be acknowledged. ``unplaced`` are values acknowledged without an
    offset: the leader knows that it has the record, but after a restart not where (DUPLICATE_SEQUENCE_NUMBER).
    """

    topic: str

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.unplaced: set[tuple[int, bytes]] = set()
        self.sent = 0
        self.thread = ClientThread(self.topic, self.send_until_stopped, ends_within=2 * STALL)

    def next_value(self) -> tuple[int, bytes]:
        """The partition and value of the next record."""
        number = self.sent
        self.sent += 1
        return number % PARTITIONS, b"%08d" % number

    def note(self, partition: int, offset: int | None, value: bytes) -> None:
        """Store an acknowledgement."""
        if offset is None or offset < 0:
            self.unplaced.add((partition, value))
            return
        known = self.acknowledged.setdefault((partition, offset), value)
        if known != value:
            raise AssertionError(f"{self.topic}-{partition}: offset {offset} was given to {known!r} and {value!r}")

    def send_until_stopped(self) -> None:
        """Send until the thread is stopping, and wait for all acknowledgements."""
        raise NotImplementedError

    def wait_for_more(self, count: int) -> None:
        """Wait until so many more records are acknowledged."""
        target, progressed = len(self.acknowledged) + count, time.monotonic()
        seen = len(self.acknowledged)
        while len(self.acknowledged) < target:
            self.thread.check()
            if len(self.acknowledged) > seen:
                seen, progressed = len(self.acknowledged), time.monotonic()
            assert time.monotonic() - progressed < STALL, f"{self.topic}: nothing acknowledged for {STALL:.0f} s"
            time.sleep(0.02)


class LibrdkafkaWriter(Writer):
    topic = "librdkafka"

    def send_until_stopped(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": DELIVERY_MS,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        errors: list[str] = []

        def note(error: Any, message: Any) -> None:
            if error is not None:
                errors.append(str(error))
            else:
                self.note(message.partition(), message.offset(), message.value())

        while not self.thread.stopping.wait(PACE):
            partition, value = self.next_value()
            producer.produce(self.topic, value, partition=partition, on_delivery=note)
            producer.poll(0)
        assert producer.flush(DELIVERY_MS / 1000) == 0
        assert not errors, errors


class AiokafkaWriter(Writer):
    topic = "aiokafka"

    def send_until_stopped(self) -> None:
        asyncio.run(self._send())

    async def _send(self) -> None:
        pending: set[asyncio.Task[None]] = set()
        async with AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, enable_idempotence=True, request_timeout_ms=DELIVERY_MS
        ) as producer:

            async def wait(partition: int, value: bytes, answer: Any) -> None:
                self.note(partition, (await answer).offset, value)

            while not self.thread.stopping.is_set():
                partition, value = self.next_value()
                answer = await producer.send(self.topic, value, partition=partition)
                task = asyncio.create_task(wait(partition, value, answer))
                pending.add(task)
                task.add_done_callback(lambda done: None if done.exception() else pending.discard(done))
                await asyncio.sleep(PACE)
            await asyncio.gather(*pending)


class TriokafkaWriter(Writer):
    topic = "triokafka"

    def send_until_stopped(self) -> None:
        trio.run(self._send)

    async def _send(self) -> None:
        async with (
            triokafka.Producer(bootstrap_servers=self.bootstrap, delivery_timeout_ms=DELIVERY_MS) as producer,
            trio.open_nursery() as nursery,
        ):

            async def wait(partition: int, value: bytes, delivery: Any) -> None:
                self.note(partition, (await delivery).offset, value)

            while not self.thread.stopping.is_set():
                partition, value = self.next_value()
                nursery.start_soon(wait, partition, value, await producer.send(self.topic, value, partition=partition))
                await trio.sleep(PACE)


def check(cluster: MixedCluster, writer: Writer) -> None:
    """Compare the topic with the acknowledgements of its writer."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "check", "enable.auto.commit": False})
    found: dict[tuple[int, int], bytes] = {}
    try:
        where = [TopicPartition(writer.topic, partition) for partition in range(PARTITIONS)]
        total = sum(consumer.get_watermark_offsets(one, TIMEOUT)[1] for one in where)
        consumer.assign([TopicPartition(writer.topic, partition, 0) for partition in range(PARTITIONS)])
        deadline = time.monotonic() + TIMEOUT
        while len(found) < total and time.monotonic() < deadline:
            for message in consumer.consume(5000, 1.0):
                assert message.error() is None, message.error()
                found[message.partition(), message.offset()] = message.value()
    finally:
        consumer.close()
    count = len(writer.acknowledged) + len(writer.unplaced)
    assert count == writer.sent, f"{writer.topic}: not every record was acknowledged"
    lost = {key: value for key, value in writer.acknowledged.items() if found.get(key) != value}
    assert not lost, f"{writer.topic}: {len(lost)} acknowledged records are lost, as {next(iter(lost.items()))}"
    for partition in range(PARTITIONS):
        values = [value for (number, _), value in sorted(found.items()) if number == partition]
        assert len(values) == len(set(values)), f"{writer.topic}-{partition} has a record twice"
        assert values == sorted(values), f"{writer.topic}-{partition} is out of order"
        unplaced = {value for number, value in writer.unplaced if number == partition}
        assert unplaced <= set(values), f"{writer.topic}-{partition}: acknowledged records are lost: {unplaced}"
        assert len(values) == sum(number == partition for number, _ in writer.acknowledged) + len(unplaced)


@contextmanager
def written(cluster: MixedCluster) -> Iterator[list[Writer]]:
    """Let all clients write for the length of the block; then compare the replicas with the acknowledgements."""
    writers: list[Writer] = [kind(cluster.bootstrap) for kind in (LibrdkafkaWriter, AiokafkaWriter, TriokafkaWriter)]
    for writer in writers:
        cluster.create_topic(writer.topic, PARTITIONS)
    with ExitStack() as running:
        for writer in writers:
            running.enter_context(writer.thread.running())
        yield writers
    for writer in writers:
        cluster.assert_replicas_equal(writer.topic, PARTITIONS)
        check(cluster, writer)
    for node in cluster.nodes.values():
        node.end(signal.SIGKILL)
    cluster.assert_metadata_logs_agree()


def kill_and_pause(tmp_path: Path, kills: int, seed: int) -> None:
    """Kill a random node so many times, and stop or pause one now and then, while all writers continue."""
    chance = random.Random(seed)
    print(f"seed {seed}")
    members = [Member(number) for number in (1, 2, 3)]
    settings = {"unclean_leader_election_enable": "false"}
    killed = 0
    with mixed_cluster(tmp_path, members, **settings) as cluster, written(cluster) as writers:
        while killed < kills:
            for writer in writers:
                writer.wait_for_more(50)
            node = cluster.nodes[chance.choice((1, 2, 3))]
            fault = chance.choices(("kill", "stop", "pause"), (14, 2, 4))[0]
            print(f"{killed} killed; node {node.number}: {fault}", flush=True)
            if fault == "pause":
                node.pause()
                time.sleep(chance.uniform(0.2, 6.0))  # the fault itself
                node.resume()
                continue
            node.end(signal.SIGKILL if fault == "kill" else signal.SIGTERM)
            killed += fault == "kill"
            if chance.random() < 0.5:
                for writer in writers:
                    writer.wait_for_more(20)
            node.start()
            node.wait_until_listening()


def test_no_acknowledged_record_is_lost_repeated_or_reordered_through_twenty_kills(tmp_path: Path) -> None:
    kill_and_pause(tmp_path, KILLS, seed=random.randrange(2**32))


def test_no_acknowledged_record_is_lost_repeated_or_reordered_when_all_nodes_die_at_once(tmp_path: Path) -> None:
    """At first too few replicas are in sync, and clients repeat unacknowledged records."""
    members = [Member(number) for number in (1, 2, 3)]
    with mixed_cluster(tmp_path, members) as cluster, written(cluster) as writers:
        for _ in range(2):
            for writer in writers:
                writer.wait_for_more(50)
            for node in cluster.nodes.values():
                node.end(signal.SIGKILL)
            for node in cluster.nodes.values():
                node.start()
            for node in cluster.nodes.values():
                node.wait_until_listening()
        for writer in writers:
            writer.wait_for_more(50)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_no_acknowledged_record_is_lost_repeated_or_reordered_through_many_kills(tmp_path: Path) -> None:
    kill_and_pause(tmp_path, LONG_KILLS, seed=random.randrange(2**32))
