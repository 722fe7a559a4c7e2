"""Which broker coordinates a group, and the topic that stores the groups."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.broker_stub.api.node import running_node
from tests.unit.broker_stub.api.test_group_handlers import commit_request, join_request
from triokafka.broker_stub.api.find_coordinator import find_coordinator
from triokafka.broker_stub.authorizer import Authorizer
from triokafka.broker_stub.coordinators.coordinator_entry import KeyType
from triokafka.broker_stub.metadata.image import BrokerImage, EndpointImage, PartitionImage, TopicImage
from triokafka.coordinator.runtime.partitioning import coordinator_partition
from triokafka.errors import (
    CoordinatorNotAvailableError,
    GroupAuthorizationFailedError,
    InvalidRequestError,
    NotCoordinatorError,
)
from triokafka.protocol.api.find_coordinator import FindCoordinatorRequest
from triokafka.protocol.api.offset_commit import OffsetCommitRequest
from triokafka.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from triokafka.security.acl import AclOperation, ResourceType

PARTITIONS = 6


def context(leaders: list[int], *, brokers: dict[int, BrokerImage] | None = None, listener: str = "PLAINTEXT") -> Any:
    """The context of a request in a cluster of brokers 0 to 2, which lead the partitions that store the groups."""

    async def ensure(name: str) -> TopicImage:
        partitions = {
            number: PartitionImage(number, (0, 1, 2), (0,), leader, 1, 1) for number, leader in enumerate(leaders)
        }
        return TopicImage(name, uuid.uuid4(), partitions)

    if brokers is None:
        brokers = {number: broker(number) for number in range(3)}
    runtime = SimpleNamespace(partition_for=lambda group: coordinator_partition(group, len(leaders)))
    entry = SimpleNamespace(
        topic=SimpleNamespace(name="__consumer_offsets"), coordinator=SimpleNamespace(runtime=runtime)
    )
    return SimpleNamespace(
        version=4,
        listener=listener,
        denied=lambda *_: False,
        topic_creation=SimpleNamespace(ensure=ensure),
        broker=SimpleNamespace(coordinators=SimpleNamespace(for_key_type={KeyType.GROUP: entry}.get)),
        metadata=SimpleNamespace(image=SimpleNamespace(brokers=brokers)),
        node_id=0,
        replicas=SimpleNamespace(check_online=lambda _: None),
    )


def broker(number: int, *, fenced: bool = False) -> BrokerImage:
    endpoints = (EndpointImage("PLAINTEXT", f"broker-{number}", 9092), EndpointImage("OTHER", f"inside-{number}", 9093))
    return BrokerImage(number, 1, uuid.uuid4(), endpoints, fenced=fenced)


async def test_coordinator_of_a_group_is_the_leader_of_its_partition() -> None:
    """A partition stores many groups, and every broker coordinates those of the partitions that it leads."""
    groups = [f"group-{i}" for i in range(60)]
    leaders = [0, 1, 2, 0, 1, 2]
    response = await find_coordinator(FindCoordinatorRequest(coordinator_keys=groups), context(leaders))
    found = {c.key: (c.node_id, c.host, c.port, c.error_code) for c in response.coordinators}
    assert list(found) == groups
    for group in groups:
        leader = leaders[coordinator_partition(group, PARTITIONS)]
        assert found[group] == (leader, f"broker-{leader}", 9092, 0)
    assert {node for node, *_ in found.values()} == {0, 1, 2}


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_found_coordinator_has_no_error_in_words_as_kafka_says_it(version: int) -> None:
    """For a single group Kafka answers ``NONE``, which tests of some clients expect."""
    asked = context([1])
    asked.version = version
    response = await find_coordinator(FindCoordinatorRequest(key="g"), asked)
    assert (response.error_code, response.error_message, response.node_id) == (0, "NONE", 1)
    (found,) = (await find_coordinator(FindCoordinatorRequest(coordinator_keys=["g"]), context([1]))).coordinators
    assert (found.error_code, found.error_message) == (0, "")


async def test_coordinator_is_named_by_the_listener_that_the_client_uses() -> None:
    request = FindCoordinatorRequest(coordinator_keys=["g"])
    (found,) = (await find_coordinator(request, context([1], listener="OTHER"))).coordinators
    assert (found.host, found.port) == ("inside-1", 9093)


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(context([-1]), id="no leader"),
        pytest.param(context([7]), id="a leader that is not registered"),
        pytest.param(context([1], brokers={1: broker(1, fenced=True)}), id="a leader that is fenced"),
        pytest.param(context([1], listener="NOWHERE"), id="a leader without the listener"),
    ],
)
@pytest.mark.parametrize("version", [0, 4])
async def test_group_without_a_coordinator_gets_a_retriable_error(found: Any, version: int) -> None:
    """COORDINATOR_NOT_AVAILABLE with an empty node."""
    found.version = version
    response = await find_coordinator(FindCoordinatorRequest(key="g", coordinator_keys=["g"]), found)
    one = response.coordinators[0] if version >= 4 else response
    assert (one.error_code, one.node_id, one.host, one.port) == (CoordinatorNotAvailableError.code, -1, "", -1)


async def test_topic_that_cannot_be_made_yet_is_no_coordinator() -> None:
    found = context([0])

    async def ensure(name: str) -> TopicImage:
        raise CoordinatorNotAvailableError(f"{name} could not be created yet")

    found.topic_creation.ensure = ensure
    (one,) = (await find_coordinator(FindCoordinatorRequest(coordinator_keys=["g"]), found)).coordinators
    assert one.error_code == CoordinatorNotAvailableError.code


class Only(Authorizer):
    """One group may be described, and nothing else is refused."""

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        return resource_type is not ResourceType.GROUP or name == "mine"


async def test_groups_that_may_not_be_described_are_refused_one_by_one() -> None:
    """KIP-699."""
    async with running_node(authorizer=Only()) as node:
        response = await node.call(FindCoordinatorRequest(coordinator_keys=["yours", "mine"]), 4)
        codes = {c.key: c.error_code for c in response.coordinators}
        assert codes == {"yours": GroupAuthorizationFailedError.code, "mine": 0}
        refused = await node.call(FindCoordinatorRequest(key="yours"), 3)
        assert (refused.error_code, refused.node_id) == (GroupAuthorizationFailedError.code, -1)


@pytest.mark.parametrize("key_type", [-128, -1, 2, 3, 127])
async def test_each_key_of_a_type_that_is_not_served_is_refused(key_type: int) -> None:
    async with running_node() as node:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["a", "b"])
        response = await node.call(request, 6)
        assert [(c.key, c.error_code) for c in response.coordinators] == [
            ("a", InvalidRequestError.code),
            ("b", InvalidRequestError.code),
        ]


async def test_no_keys_have_no_coordinators() -> None:
    async with running_node() as node:
        assert (await node.call(FindCoordinatorRequest(coordinator_keys=[]), 4)).coordinators == []


async def test_topic_of_the_groups_is_internal_compacted_and_as_large_as_configured() -> None:
    """Compacted, in segments of ``offsets.topic.segment.bytes``, compressed as it was appended."""
    async with running_node(offsets_topic_num_partitions=7, offsets_topic_segment_bytes=2_000_000) as node:
        assert "__consumer_offsets" not in node.broker.image.topics
        await node.call(FindCoordinatorRequest(key="g"), 1)
        assert len(node.broker.image.topics["__consumer_offsets"].partitions) == 7
        config = node.broker.image.topic_configs("__consumer_offsets")
        assert {name: config[name] for name in ("cleanup.policy", "segment.bytes", "compression.type")} == {
            "cleanup.policy": "compact",
            "segment.bytes": "2000000",
            "compression.type": "producer",
        }


async def test_groups_of_other_brokers_are_not_served() -> None:
    """A coordinator manages the groups that map to it, and no others."""
    async with running_node(group_initial_rebalance_delay_ms=0) as node:
        await node.create("t")
        await node.call(FindCoordinatorRequest(key="g"), 1)
        coordinator = node.broker.group_coordinator
        assert (await node.call(join_request(3), 3)).error_code == 0
        coordinator.runtime.unload(coordinator.runtime.partition_for("g"))
        assert (await node.call(join_request(3), 3)).error_code == NotCoordinatorError.code
        committed = await node.call(commit_request(node, 8), 8)
        assert committed.topics[0].partitions[0].error_code == NotCoordinatorError.code
        groups = [OffsetFetchRequestGroup(group_id="g", topics=None)]
        fetched = await node.call(OffsetFetchRequest(groups=groups), 8)
        assert fetched.groups[0].error_code == NotCoordinatorError.code


async def test_positions_are_not_served_in_the_versions_that_were_for_zookeeper() -> None:
    """The data that version 0 stored there do not exist any more, so it is refused, as by Kafka 4 (KIP-896)."""
    async with running_node() as node:
        served = {key: handler.versions for key, handler in node.broker.dispatcher.handlers.items()}
    assert min(served[OffsetCommitRequest.api_key]) == 2
    assert min(served[OffsetFetchRequest.api_key]) == 1
