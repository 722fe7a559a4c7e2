"""A consumer with a rack, on brokers of Apache Kafka in different racks: it reads from the replica in its rack
(KIP-392).
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator

import pytest
import trio

import triokafka
from tests.interop.kafka_cluster import KafkaCluster, kafka_cluster
from triokafka.structs import Node, TopicPartition

pytestmark = pytest.mark.interop

RECORDS = 500


class FetchedFrom(triokafka.Hooks):
    """Counts the bytes of records by broker."""

    def __init__(self) -> None:
        self.bytes: Counter[int] = Counter()

    def on_fetch(self, node: Node, partitions: int, size: int, seconds: float) -> None:
        self.bytes[node.node_id] += size


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with kafka_cluster(tmp_path_factory.mktemp("racks"), racks=True) as cluster:
        yield cluster


async def produce(cluster: KafkaCluster, topic: str, first: int) -> None:
    async with triokafka.Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        for number in range(first, first + RECORDS):
            await producer.send(topic, b"%d" % number, partition=0)


async def read(consumer: triokafka.Consumer, first: int) -> None:
    with trio.fail_after(90):
        for number in range(first, first + RECORDS):
            assert (await anext(consumer)).value == b"%d" % number


async def test_records_come_from_the_readers_rack_and_after_its_failure_from_the_leader(
    racks: KafkaCluster,
) -> None:
    async with triokafka.AdminClient(bootstrap_servers=racks.bootstrap) as admin:
        await admin.create_topics([triokafka.NewTopic("near", 1, 3)])
    await trio.to_thread.run_sync(racks.wait_until_in_sync, "near")
    await produce(racks, "near", 0)
    [leader] = racks.leaders("near")
    neighbour = next(node for node in racks.nodes if node.number != leader)
    watch = FetchedFrom()
    async with triokafka.Consumer(
        bootstrap_servers=racks.bootstrap,
        client_rack=f"rack-{neighbour.number}",
        auto_offset_reset="earliest",
        hooks=watch,
    ) as consumer:
        consumer.assign([TopicPartition("near", 0)])
        await read(consumer, 0)
        assert set(watch.bytes) >= {neighbour.number} and watch.bytes[leader] == 0
        before = watch.bytes[neighbour.number]
        assert before > 0
        await trio.to_thread.run_sync(neighbour.end, signal.SIGKILL)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce, racks, "near", RECORDS)
            await read(consumer, RECORDS)
        assert watch.bytes[leader] > 0 and watch.bytes[neighbour.number] == before
        await consumer.poll(timeout_ms=2_000)
        assert consumer.health().healthy, consumer.health().troubles


async def test_a_reader_without_a_rack_reads_from_the_leader(racks: KafkaCluster) -> None:
    watch = FetchedFrom()
    async with triokafka.Consumer(
        bootstrap_servers=racks.bootstrap, auto_offset_reset="earliest", hooks=watch
    ) as consumer:
        consumer.assign([TopicPartition("near", 0)])
        await read(consumer, 0)
    [leader] = racks.leaders("near")
    assert [number for number, size in watch.bytes.items() if size] == [leader]
