"""The responses of a test cluster's brokers to requests for the wrong broker, byte by byte (KIP-951)."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import triokafka
from triokafka.errors import NotCoordinatorError, NotLeaderForPartitionError
from triokafka.protocol.api.fetch import FetchPartition, FetchRequest, FetchTopic
from triokafka.protocol.api.find_coordinator import FindCoordinatorRequest
from triokafka.protocol.api.heartbeat import HeartbeatRequest
from triokafka.protocol.api.metadata import MetadataRequest, MetadataRequestTopic
from triokafka.protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from triokafka.protocol.frames import decode_response, encode_request
from triokafka.records import encode_batch
from triokafka.testing import RunningBroker, RunningCluster, running_cluster


async def ask(broker: RunningBroker, request: Any, version: int) -> Any:
    """The answer of that broker."""
    host, port = broker.bootstrap_servers.split(":")
    stream = await trio.open_tcp_stream(host, int(port))
    async with stream:
        await stream.send_all(b"".join(encode_request(request, version=version, correlation_id=1, client_id="c")))
        received = b""
        while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
            received += await stream.receive_some()
    return decode_response(type(request).response_type, received[4:], version=version)[1]


def others(cluster: RunningCluster, leader: int) -> list[RunningBroker]:
    """The brokers that do not lead."""
    return [broker for broker in cluster.brokers if broker.node_id != leader]


@pytest.mark.parametrize("replicas", [1, 3])
async def test_follower_names_the_leader(replicas: int) -> None:
    async with running_cluster(nodes=3) as cluster:
        await cluster.create_topic("t", partitions=1, replication_factor=replicas)
        topic_id = cluster.image.topics["t"].topic_id
        batch = encode_batch([(0, None, b"1", ())])
        for epoch in (1, 2, 3, 4):
            leader = await cluster.move_leader("t")
            produce = ProduceRequest(
                acks=-1,
                timeout_ms=1000,
                topic_data=[
                    TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=bytes(batch))])
                ],
            )
            fetch = FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                session_epoch=-1,
                topics=[
                    FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])
                ],
            )
            for broker in others(cluster, leader):
                produced = await ask(broker, produce, 12)
                (fetched,) = (answer := await ask(broker, fetch, 16)).responses[0].partitions
                reads = cluster.image.partition("t", 0)
                assert reads is not None
                if broker.node_id in reads.replicas:
                    assert fetched.error_code == 0, "followers serve consumers (KIP-392)"
                    refused, addressed = [produced.responses[0].partition_responses[0]], [produced.node_endpoints]
                else:
                    refused = [produced.responses[0].partition_responses[0], fetched]
                    addressed = [produced.node_endpoints, answer.node_endpoints]
                for partition in refused:
                    assert partition.error_code == NotLeaderForPartitionError.code
                    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (
                        leader,
                        epoch,
                    )
                for endpoints in addressed:
                    assert [(node.node_id, f"{node.host}:{node.port}") for node in endpoints] == [
                        (leader, cluster.broker(leader).bootstrap_servers)
                    ]
            found = await ask(cluster.broker(leader), produce, 12)
            assert found.responses[0].partition_responses[0].base_offset == epoch - 1


async def test_metadata_and_coordinators_are_the_same_at_every_broker() -> None:
    async with running_cluster(nodes=3) as cluster:
        await cluster.create_topic("t", partitions=3)
        for _ in range(3):
            leader = await cluster.move_leader("t", 1)
            coordinator = await cluster.move_coordinator("g")
            for broker in cluster.brokers:
                request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
                metadata = await ask(broker, request, 12)
                assert {node.node_id: f"{node.host}:{node.port}" for node in metadata.brokers} == {
                    one.node_id: one.bootstrap_servers for one in cluster.brokers
                }
                assert metadata.controller_id == 1
                partition = metadata.topics[0].partitions[1]
                assert (partition.leader_id, partition.leader_epoch) == (leader, cluster.leader_epoch("t", 1))
                found = (await ask(broker, FindCoordinatorRequest(coordinator_keys=["g"]), 4)).coordinators[0]
                assert (found.node_id, f"{found.host}:{found.port}") == (
                    coordinator,
                    cluster.broker(coordinator).bootstrap_servers,
                )
            for broker in others(cluster, coordinator):
                heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
                assert (await ask(broker, heartbeat, 4)).error_code == NotCoordinatorError.code


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_groups_of_both_protocols_continue_through_moves_and_losses(protocol: str) -> None:
    async with running_cluster(nodes=3) as cluster:
        await cluster.create_topic("t", partitions=3)
        async with (
            triokafka.Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer,
            triokafka.Consumer(
                "t",
                bootstrap_servers=cluster.bootstrap_servers,
                group_id="g",
                group_protocol=protocol,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                retry_backoff_ms=10,
            ) as consumer,
        ):
            seen: list[bytes | None] = []
            for number in range(12):
                delivery = await producer.send("t", b"%d" % number, partition=number % 3)
                if number % 4 == 1:
                    await cluster.move_coordinator("g")
                if number % 4 == 2:
                    await cluster.move_leader("t", number % 3)
                if number == 7:
                    await cluster.restart(cluster.coordinator("g"), clean=False)
                await delivery
                while len(seen) <= number:
                    for records in (await consumer.poll(timeout_ms=100)).values():
                        seen += [record.value for record in records]
                await consumer.commit()
            assert seen == [b"%d" % number for number in range(12)]
