"""Position lookups: one partition's lookup does not delay another's."""

from __future__ import annotations

from typing import Any

import trio

import triokafka
from tests.support.scripted_reading import ReadableBroker, ReadableCluster, client_of
from tests.support.simulated import simulated
from triokafka.client.consumer.consumer import Consumer
from triokafka.errors import UnknownTopicOrPartitionError
from triokafka.protocol.api.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from triokafka.protocol.api.metadata import MetadataRequest, MetadataResponse
from triokafka.protocol.api.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from triokafka.structs import OffsetAndMetadata, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def started(*, nodes: int = 1) -> tuple[ReadableCluster, dict[str, Any]]:
    cluster = ReadableCluster(t=2)
    options = await client_of(cluster, nodes=nodes, auto_offset_reset="earliest")
    cluster.write("t", 0, [b"of 0"])
    cluster.write("t", 1, [b"of 1"])
    return cluster, options


async def next_of(consumer: Consumer, seconds: float) -> list[TopicPartition]:
    """Return the partitions whose records arrive within so many seconds."""
    ends = trio.current_time() + seconds
    while trio.current_time() < ends:
        if polled := await consumer.poll(timeout_ms=100):
            return list(polled)
    return []


@simulated
async def test_a_partition_without_a_leader_does_not_keep_others_from_being_read() -> None:
    """Its data directory may be offline; the partition is read once it has a leader."""
    cluster, options = await started()
    cluster.move("t", 1, -1)
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0, T1])
        assert await next_of(consumer, 5) == [T0]
        cluster.move("t", 1, 1)
        assert await next_of(consumer, 5) == [T1]


@simulated
async def test_a_broker_that_is_silent_does_not_keep_partitions_of_others_from_being_read() -> None:
    """Each leader's response is used when it arrives."""
    cluster, options = await started(nodes=2)
    cluster.move("t", 1, 2)
    cluster.brokers[2].script(ListOffsetsRequest, lambda request: trio.sleep_forever())
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0, T1])
        assert await next_of(consumer, 5) == [T0]


@simulated
async def test_topic_that_does_not_exist_yet_is_read_from_its_first_record_and_others_from_their_end() -> None:
    """A consumer at the end of the log gets all records that are sent after the assignment."""
    cluster = ReadableCluster(t=1, u=1)
    options = await client_of(cluster, auto_offset_reset="latest")
    cluster.topic_errors["t"] = UnknownTopicOrPartitionError.code
    cluster.write("u", 0, [b"old"])
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0, TopicPartition("u", 0)])
        assert await next_of(consumer, 1) == []
        cluster.write("t", 0, [b"first"])
        del cluster.topic_errors["t"]
        assert await next_of(consumer, 5) == [T0]


@simulated
async def test_metadata_of_a_newly_assigned_topic_is_requested_at_once() -> None:
    """A refresh just before does not delay it: a producer could meanwhile create the topic and send to it."""
    cluster, options = await started()
    broker = cluster.brokers[1]
    asked: list[float] = []

    def metadata(request: MetadataRequest) -> MetadataResponse:
        asked.append(trio.current_time())
        return broker.metadata(request)

    async with triokafka.Consumer(**options) as consumer:
        await consumer.engine.network.connect()
        broker.script(MetadataRequest, *[metadata] * 100)
        begun = trio.current_time()
        consumer.assign([T0])
        assert await next_of(consumer, 5) == [T0]
    assert asked[0] - begun < 0.05, "virtual seconds of the network"


@simulated
async def test_a_position_is_looked_up_as_soon_as_the_leader_is_known() -> None:
    """However long the partition had none: a consumer of a new topic begins at its end before the first record."""
    cluster, options = await started()
    broker = cluster.brokers[1]
    assert isinstance(broker, ReadableBroker)
    cluster.move("t", 1, -1)
    learned: list[float] = []
    asked: list[float] = []

    def metadata(request: MetadataRequest) -> MetadataResponse:
        response = broker.metadata(request)
        if all(partition.leader_id >= 0 for topic in response.topics for partition in topic.partitions):
            learned.append(trio.current_time())
        return response

    def list_offsets(request: ListOffsetsRequest) -> ListOffsetsResponse:
        asked.append(trio.current_time())
        return broker.list_offsets(request)

    async with triokafka.Consumer(**options) as consumer:
        broker.script(MetadataRequest, *[metadata] * 100)
        consumer.assign([T1])
        assert await next_of(consumer, 5) == []
        broker.script(ListOffsetsRequest, list_offsets)
        cluster.move("t", 1, 1)
        assert await next_of(consumer, 5) == [T1]
    assert asked[0] - learned[0] < 0.05, "virtual seconds of the network"


@simulated
async def test_a_missing_topic_does_not_keep_others_from_being_read() -> None:
    """This holds also if the other topics were known before."""
    _, options = await started()
    async with triokafka.Consumer(**options) as consumer:
        await consumer.partitions_for_topic("t")
        consumer.assign([TopicPartition("none", 0), T0])
        assert await next_of(consumer, 5) == [T0]


@simulated
async def test_a_position_whose_leader_is_silent_is_validated_later_and_others_at_once() -> None:
    """The response of one leader about its epochs is used without waiting for the others (KIP-320)."""
    cluster, options = await started(nodes=2)
    cluster.move("t", 0, 1)
    cluster.move("t", 1, 2)
    cluster.epoch_ends |= {(T0, 0): (0, 1), (T1, 0): (0, 1)}
    cluster.brokers[2].script(OffsetForLeaderEpochRequest, lambda request: trio.sleep_forever())
    async with triokafka.Consumer(**options) as consumer:
        await consumer.partitions_for_topic("t")
        consumer.assign([T0, T1])
        for partition in (T0, T1):
            consumer.seek(partition, OffsetAndMetadata(0, "", 0))
        assert await next_of(consumer, 5) == [T0]
