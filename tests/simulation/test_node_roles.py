"""Nodes with any roles form one cluster: quorum, forwarded requests, lost controllers. In virtual time."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from tests.support.simulated import current_simulation, simulated
from tests.support.simulated_cluster import BOTH, SimulatedCluster, SimulatedNode, running_nodes
from triokafka import AdminClient
from triokafka.broker_stub.configured_authorizer import STANDARD_AUTHORIZER
from triokafka.client.admin import NewTopic
from triokafka.errors import KafkaError, RequestTimedOutError, StaleBrokerEpochError
from triokafka.network.node_channel import NodeChannel
from triokafka.protocol.api.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)
from triokafka.protocol.api.create_topics import CreatableTopic, CreateTopicsRequest
from triokafka.protocol.api.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from triokafka.protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from triokafka.protocol.api.describe_cluster import DescribeClusterRequest
from triokafka.protocol.api.describe_quorum import DescribeQuorumRequest
from triokafka.protocol.api.describe_quorum import PartitionData as QuorumPartition
from triokafka.protocol.api.describe_quorum import TopicData as QuorumTopic
from triokafka.protocol.api.envelope import EnvelopeRequest
from triokafka.protocol.api.list_partition_reassignments import ListPartitionReassignmentsRequest
from triokafka.protocol.frames import encode_request
from triokafka.structs import Node as Address

CONTROLLER = ("controller",)
BROKER = ("broker",)
LAYOUTS = {
    "three nodes with both roles": (BOTH, BOTH, BOTH),
    "three controllers and two brokers": (CONTROLLER, CONTROLLER, CONTROLLER, BROKER, BROKER),
    "one node with both roles and a broker": (BOTH, BROKER),
    "one controller and one broker": (CONTROLLER, BROKER),
}


def admin(cluster: SimulatedCluster, node: SimulatedNode) -> AdminClient:
    return AdminClient(bootstrap_servers=node.running_node.addresses, world=cluster.simulation.host("admin").world)


async def create(cluster: SimulatedCluster, node: SimulatedNode, name: str, replicas: int = 1) -> None:
    async with admin(cluster, node) as client:
        await client.create_topics([NewTopic(name, 2, replicas)])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_broker_accepts_changes_of_the_cluster(layout: str) -> None:
    @simulated
    async def run() -> None:
        async with running_nodes(current_simulation(), LAYOUTS[layout]) as cluster:
            brokers = [one for one in cluster.nodes if one.is_broker]
            for number, broker in enumerate(brokers):
                await create(cluster, broker, f"topic-{number}")
            for one in cluster.nodes:
                image = await one.wait_for(lambda image: len(image.topics) == len(brokers))
                assert not any(node.fenced for node in image.brokers.values())
                assert sorted(image.brokers) == [broker.number for broker in brokers]

    run()


@simulated
async def test_controllers_register_with_their_listeners() -> None:
    async with running_nodes(current_simulation(), LAYOUTS["three controllers and two brokers"]) as cluster:
        for one in cluster.nodes:
            image = await one.wait_for(lambda image: len(image.controllers) == 3)
            assert {c.controller_id: c.end_points[0].port for c in image.controllers.values()} == {
                1: 9093,
                2: 9093,
                3: 9093,
            }


@simulated
async def test_request_to_a_lost_controller_succeeds_at_the_next_one() -> None:
    async with running_nodes(current_simulation()) as cluster:
        lost = await cluster.wait_active()
        other = next(one for one in cluster.nodes if one is not lost)
        done = trio.Event()

        async def create_while_it_dies() -> None:
            await create(cluster, other, "orders")
            done.set()

        async with trio.open_nursery() as nursery:
            await lost.kill()
            nursery.start_soon(create_while_it_dies)
            with trio.fail_after(30):
                await done.wait()
        assert (await cluster.wait_active()) is not lost
        lost.start()
        await lost.wait_started()
        await lost.wait_for(lambda image: "orders" in image.topics)


@simulated
async def test_wait_for_an_isolated_controller_is_bounded() -> None:
    simulation = current_simulation()
    async with running_nodes(simulation) as cluster:
        lost = await cluster.wait_active()
        others = [one for one in cluster.nodes if one is not lost]
        for one in others:
            simulation.network.partition(lost.name, one.name)
        # Through the node itself: a client might ask the isolated one.
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name="orders", num_partitions=2, replication_factor=1)], timeout_ms=30_000
        )
        with trio.fail_after(30):
            response = await others[0].running_node.broker.gateway.create_topics(request)
        assert [topic.error_code for topic in response.topics] == [0]
        simulation.network.heal()
        with trio.fail_after(30):
            await lost.wait_for(lambda image: "orders" in image.topics)


@simulated
async def test_node_that_starts_without_a_quorum_says_what_it_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    cluster = SimulatedCluster(current_simulation())
    cluster.nodes[0].start()
    await trio.sleep(75)
    waits = [text for text in caplog.messages if text.startswith("Node 1 waits for the metadata of the cluster")]
    assert len(waits) == 2, "after 10 seconds, and a minute later"
    assert "it knows no leader of the metadata quorum; last failure: could not connect to broker" in waits[0]
    cluster.nodes[1].start()
    await cluster.nodes[0].wait_started()
    await cluster.stop()


@simulated
async def test_broker_lists_reassignments_by_asking_the_active_controller() -> None:
    """Its own metadata may be older than an acknowledged change."""
    simulation = current_simulation()
    async with (
        running_nodes(simulation, LAYOUTS["one controller and one broker"]) as cluster,
        trio.open_nursery() as nursery,
    ):
        controller, broker = cluster.nodes
        channel = NodeChannel(
            Address(broker.number, broker.name, 9092), world=cluster.client_world(), client_id="client"
        )
        nursery.start_soon(channel.run)
        request = ListPartitionReassignmentsRequest(timeout_ms=3_000)
        assert (await channel.send(request)).error_code == 0
        simulation.network.partition(controller.name, broker.name)
        assert (await channel.send(request)).error_code == RequestTimedOutError.code
        nursery.cancel_scope.cancel()


@simulated
async def test_stopped_active_controller_hands_the_quorum_over_at_once() -> None:
    async with running_nodes(current_simulation()) as cluster:
        first = await cluster.wait_active()
        began = trio.current_time()
        await first.stop()
        second = await cluster.wait_active()
        assert second is not first
        assert trio.current_time() - began < 4
        await create(cluster, second, "orders")


@simulated
async def test_stopping_node_is_fenced_before_it_ends_and_unfenced_soon_after_its_restart() -> None:
    """Clients and followers do not wait for the end of its session, whichever node is the active controller."""
    async with running_nodes(current_simulation()) as cluster:
        first = await cluster.wait_active()
        await create(cluster, first, "orders", replicas=3)
        for node in (first, cluster.nodes[first.number % 3]):
            node_id, other = node.number, cluster.nodes[node.number % 3]
            await other.wait_for(lambda image: not any(broker.fenced for broker in image.brokers.values()))
            await trio.sleep(1)
            began = trio.current_time()
            await node.stop()
            assert trio.current_time() - began < 1
            image = await other.wait_for(lambda image, gone=node_id: image.brokers[gone].fenced)  # type: ignore[misc]
            assert trio.current_time() - began < 1
            partitions = image.topics["orders"].partitions
            assert all(one.leader != node_id and node_id not in one.isr for one in partitions.values())
            node.start()
            await other.wait_for(
                lambda image: all(len(one.isr) == 3 for one in image.topics["orders"].partitions.values())
            )
            assert trio.current_time() - began < 3


@simulated
async def test_without_a_quorum_a_change_fails_at_its_time_limit() -> None:
    async with running_nodes(current_simulation()) as cluster:
        first = await cluster.wait_active()
        others = [one for one in cluster.nodes if one is not first]
        await first.kill()
        await others[0].kill()
        request = CreateTopicsRequest(topics=[CreatableTopic(name="a", num_partitions=1)], timeout_ms=3_000)
        began = trio.current_time()
        with pytest.raises(RequestTimedOutError):
            await others[1].running_node.broker.gateway.create_topics(request)
        assert trio.current_time() - began == pytest.approx(3, abs=0.5)
        first.start()
        await create(cluster, others[1], "orders")


@simulated
async def test_restarted_cluster_has_its_topics() -> None:
    async with running_nodes(current_simulation(), LAYOUTS["three controllers and two brokers"]) as cluster:
        await create(cluster, cluster.nodes[3], "orders", replicas=2)
        async with trio.open_nursery() as nursery:
            for node in cluster.nodes:
                nursery.start_soon(node.stop)
        cluster.start()
        await cluster.wait_started()
        for one in cluster.nodes:
            await one.wait_for(lambda image: "orders" in image.topics)


@simulated
async def test_killed_broker_is_fenced_and_unfenced_after_its_restart() -> None:
    async with running_nodes(current_simulation(), LAYOUTS["three controllers and two brokers"]) as cluster:
        await create(cluster, cluster.nodes[3], "orders", replicas=2)
        await cluster.nodes[4].kill()
        with trio.fail_after(30):
            await cluster.nodes[3].wait_for(lambda image: image.brokers[5].fenced)
        epoch = cluster.nodes[3].image.brokers[5].broker_epoch
        cluster.nodes[4].start()
        image = await cluster.nodes[3].wait_for(lambda image: not image.brokers[5].fenced)
        assert image.brokers[5].broker_epoch > epoch


async def controller_channel(cluster: SimulatedCluster, node: SimulatedNode, nursery: trio.Nursery) -> NodeChannel:
    world = cluster.simulation.host("client").world
    channel = NodeChannel(Address(node.number, node.name, 9093), world=world, client_id="client")
    nursery.start_soon(channel.run)
    return channel


@simulated
async def test_controllers_listener_describes_the_controllers() -> None:
    async with running_nodes(current_simulation()) as cluster, trio.open_nursery() as nursery:
        active = await cluster.wait_active()
        for one in cluster.nodes:
            channel = await controller_channel(cluster, one, nursery)
            answer = await channel.send(DescribeClusterRequest(endpoint_type=2))
            assert answer.controller_id == active.number
            assert [node.broker_id for node in answer.brokers] == [1, 2, 3]
            assert (await channel.send(DescribeClusterRequest(endpoint_type=1))).error_code == 114
        nursery.cancel_scope.cancel()


@simulated
async def test_standby_controller_refuses_changes() -> None:
    async with running_nodes(current_simulation()) as cluster, trio.open_nursery() as nursery:
        active = await cluster.wait_active()
        for one in cluster.nodes:
            channel = await controller_channel(cluster, one, nursery)
            topic = CreatableTopic(name=f"topic-{one.number}", num_partitions=1, replication_factor=1)
            answer = await channel.send(CreateTopicsRequest(topics=[topic], timeout_ms=5_000))
            assert answer.topics[0].error_code == (0 if one is active else 41)
        nursery.cancel_scope.cancel()


@simulated
async def test_envelope_to_a_standby_controller_sends_the_broker_to_the_active_one() -> None:
    """A broker uses a controller's connection until the controller reports that it is not active.

    DescribeQuorum has its own error for that, which Apache Kafka's brokers pass on to the client without looking for
    the active controller.
    """
    requests = [
        CreateTopicsRequest(
            topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)], timeout_ms=5_000
        ),
        DescribeQuorumRequest(topics=[QuorumTopic(topic_name="__cluster_metadata", partitions=[QuorumPartition()])]),
        ListPartitionReassignmentsRequest(timeout_ms=5_000),
    ]
    async with running_nodes(current_simulation()) as cluster, trio.open_nursery() as nursery:
        active = await cluster.wait_active()
        for one in cluster.nodes:
            channel = await controller_channel(cluster, one, nursery)
            for request in requests:
                version = min(2, request.versions.max)
                inside = b"".join(encode_request(request, version=version, correlation_id=1, client_id="a"))[4:]
                envelope = EnvelopeRequest(
                    request_data=inside, request_principal=None, client_host_address=b"\x7f\0\0\1"
                )
                answer = await channel.send(envelope)
                assert answer.error_code == (0 if one is active else 41), type(request)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("request_data", "principal", "address", "code"),
    [
        (b"\0", None, b"\x7f\0\0\1", 42),
        (b"\0\3\0\0\0\0\0\1\0\1a", None, b"\x7f\0\0\1", 42),  # Metadata is not forwarded
        (b"\0\x13\0\4\0\0\0\1\0\1a\0\0\0\0\0\0\0\0\0", None, b"\1", 42),
        (b"\0\x13\0\4\0\0\0\1\0\1a\0\0\0\0\0\0\0\0\0", b"\0\0\xff", b"\x7f\0\0\1", 97),
        (b"\0\x13\0\x63\0\0\0\1\0\1a\0", None, b"\x7f\0\0\1", 35),
        (b"\0\x13\0\4\0\0\0\1\0\1a\0\0\0\0\0\0\0\0\0", None, b"\x7f\0\0\1", 0),
    ],
)
def test_envelope_is_checked(request_data: bytes, principal: bytes | None, address: bytes, code: int) -> None:
    @simulated
    async def run() -> None:
        async with running_nodes(current_simulation(), (BOTH,)) as cluster, trio.open_nursery() as nursery:
            channel = await controller_channel(cluster, cluster.nodes[0], nursery)
            envelope = EnvelopeRequest(
                request_data=request_data, request_principal=principal, client_host_address=address
            )
            answer = await channel.send(envelope)
            assert answer.error_code == code
            assert (answer.response_data is None) == bool(code)
            nursery.cancel_scope.cancel()

    run()


@simulated
async def test_request_in_an_envelope_is_decoded_in_bounded_memory() -> None:
    """As a large request that comes directly: fifty thousand small elements of 500 kB would take 9 MB or more."""
    one = DeleteAclsRequest(filters=[DeleteAclsFilter(resource_type_filter=2, operation=3, permission_type=3)])
    settings = {"socket_request_max_bytes": 1 << 20, "queued_max_request_bytes": 1 << 20}
    async with running_nodes(current_simulation(), (BOTH,), **settings) as cluster, trio.open_nursery() as nursery:
        channel = await controller_channel(cluster, cluster.nodes[0], nursery)
        inside = b"".join(encode_request(one, version=1, correlation_id=1, client_id="a"))[4:]
        body = len(one.encode(1)) - 4
        for count, code in ((10_000, 0), (50_000, 42)):
            data = inside[: -body - 4] + count.to_bytes(4, "big") + inside[-body:] * count
            assert len(data) < 1 << 20
            envelope = EnvelopeRequest(request_data=data, request_principal=None, client_host_address=b"\x7f\0\0\1")
            answer = await channel.send(envelope)
            assert answer.error_code == code, count
        nursery.cancel_scope.cancel()


@simulated
async def test_large_request_is_forwarded() -> None:
    async with running_nodes(current_simulation(), LAYOUTS["one controller and one broker"]) as cluster:
        names = [f"{number:0249}" for number in range(550)]
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names], timeout_ms=5_000)
        assert len(request.encode(6)) > 131_072
        async with trio.open_nursery() as nursery:
            host, _, port = cluster.nodes[1].running_node.addresses.rpartition(":")
            address = Address(cluster.nodes[1].number, host, int(port))
            world = cluster.simulation.host("client").world
            channel = NodeChannel(address, world=world, client_id="client")
            nursery.start_soon(channel.run)
            answer = await channel.send(request)
            assert [(one.name, one.error_code) for one in answer.responses] == [(name, 3) for name in names]
            nursery.cancel_scope.cancel()


@simulated
async def test_cancelled_change_leaves_the_gateway_usable() -> None:
    async with running_nodes(current_simulation(), LAYOUTS["one controller and one broker"]) as cluster:
        gateway = cluster.nodes[1].running_node.broker.gateway
        for number in range(12):
            topic = CreatableTopic(name=f"topic-{number}", num_partitions=1, replication_factor=1)
            with trio.move_on_after(0.0005 * number):
                await gateway.create_topics(CreateTopicsRequest(topics=[topic], timeout_ms=5_000))
        answer: Any = await gateway.create_topics(
            CreateTopicsRequest(
                topics=[CreatableTopic(name="last", num_partitions=1, replication_factor=1)], timeout_ms=5_000
            )
        )
        assert answer.topics[0].error_code == 0


@simulated
async def test_error_of_the_controller_reaches_the_client() -> None:
    async with running_nodes(current_simulation(), LAYOUTS["one controller and one broker"]) as cluster:
        await create(cluster, cluster.nodes[1], "orders")
        with pytest.raises(KafkaError, match="already exists"):
            await create(cluster, cluster.nodes[1], "orders")


@simulated
async def test_broker_reports_its_log_directories_to_a_remote_controller() -> None:
    async with running_nodes(current_simulation(), LAYOUTS["one controller and one broker"]) as cluster:
        await create(cluster, cluster.nodes[1], "orders")
        broker = cluster.nodes[1].running_node.broker
        image = await cluster.nodes[1].wait_for(lambda image: "orders" in image.topics)
        partitions = [PartitionData(partition_index=number) for number in (0, 1)]
        directory = DirectoryData(
            id=image.brokers[2].directories[0],
            topics=[TopicData(topic_id=image.topics["orders"].topic_id, partitions=partitions)],
        )
        epoch = broker.lifecycle.broker_epoch
        request = AssignReplicasToDirsRequest(broker_id=2, broker_epoch=epoch, directories=[directory])
        answer = await broker.gateway.assign_replicas_to_dirs(request)
        assert [p.error_code for p in answer.directories[0].topics[0].partitions] == [0, 0]
        request.broker_epoch = epoch - 1
        with pytest.raises(StaleBrokerEpochError):
            await broker.gateway.assign_replicas_to_dirs(request)


@simulated
async def test_listener_that_does_not_start_early_serves_once_the_acls_are_loaded() -> None:
    """``early.start.listeners`` excludes it. The others serve earlier: loading the ACLs needs a quorum."""
    cluster = SimulatedCluster(
        current_simulation(), authorizer_class_name=STANDARD_AUTHORIZER, super_users="User:ANONYMOUS"
    )
    first = cluster.nodes[0]
    first.configure(
        listeners=("PLAINTEXT://node-1:9092", "CONTROLLER://node-1:9093", "ADMIN://node-1:9094"),
        listener_security_protocol_map=("PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT", "ADMIN:PLAINTEXT"),
        controller_listener_names=("CONTROLLER", "ADMIN"),
        early_start_listeners=("CONTROLLER",),
    )
    first.start()
    world = cluster.client_world()

    async def answers(port: int) -> bool:
        channel = NodeChannel(Address(1, "node-1", port), world=world, client_id="admin", request_timeout_ms=2_000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel.run)
            try:
                await channel.send(DescribeClusterRequest(endpoint_type=2))
            except KafkaError:
                return False
            finally:
                channel.close()
                nursery.cancel_scope.cancel()
        return True

    await trio.sleep(1)
    assert await answers(9093)
    assert not await answers(9094)
    for other in cluster.nodes[1:]:
        other.start()
    await trio.sleep(20)
    assert await answers(9094)
    await cluster.stop()
