"""Metadata, DescribeCluster, DescribeTopicPartitions and ApiVersions."""

from __future__ import annotations

import logging
from uuid import UUID

import pytest

from tests.unit.broker_stub.api.node import Node, running_node
from triokafka import errors
from triokafka.broker_stub.authorizer import Authorizer
from triokafka.protocol.api.api_versions import ApiVersionsRequest
from triokafka.protocol.api.describe_cluster import DescribeClusterRequest
from triokafka.protocol.api.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from triokafka.protocol.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from triokafka.protocol.frames import decode_response
from triokafka.security.acl import AclOperation, ResourceType

NOT_ASKED = -(2**31)
TOPIC_OPERATIONS = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))


def named(*names: str, **fields: bool) -> MetadataRequest:
    """A request for these topics."""
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **fields)


def summary(response: MetadataResponse) -> dict[str | None, int]:
    """Error codes by topic name."""
    return {topic.name: topic.error_code for topic in response.topics}


@pytest.mark.parametrize("version", range(0, 14))
async def test_every_version_names_brokers_and_partitions(version: int) -> None:
    async with running_node() as node:
        await node.create("t", partitions=2)
        response = await node.call(named("t"), version)
        (broker,) = response.brokers
        assert f"{broker.host}:{broker.port}" == node.broker.bootstrap_servers
        assert broker.node_id == node.broker.node_id
        (topic,) = response.topics
        assert (topic.name, topic.error_code, topic.is_internal) == ("t", 0, False)
        assert [(p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes) for p in topic.partitions] == [
            (0, 1, [1], [1]),
            (1, 1, [1], [1]),
        ]
        if version >= 1:
            assert response.controller_id == 1
        if version >= 2:
            assert response.cluster_id == node.broker.cluster_id
        if version >= 7:
            assert [p.leader_epoch for p in topic.partitions] == [0, 0]
        if version >= 10:
            assert topic.topic_id == node.broker.image.topics["t"].topic_id
        if version >= 8:
            assert topic.topic_authorized_operations == NOT_ASKED


async def test_no_topics_and_all_topics_are_distinct_requests() -> None:
    """An empty list means all in version 0, and none from version 1, where null means all."""
    async with running_node() as node:
        for name in ("b", "a"):
            await node.create(name)
        assert list(summary(await node.call(MetadataRequest(topics=[]), 0))) == ["a", "b"]
        for version in range(1, 14):
            assert summary(await node.call(MetadataRequest(topics=[]), version)) == {}
            assert list(summary(await node.call(MetadataRequest(topics=None), version))) == ["a", "b"]


@pytest.mark.parametrize("version", range(0, 14))
async def test_unknown_topic_is_created_and_described_in_the_next_response(version: int) -> None:
    """With the broker's defaults; the first request is answered that there is none (AutoTopicCreationManager
    of Kafka 4), and old clients that it has no leader yet: librdkafka before 1.6 fails records of
    unknown topics at once."""
    expected = errors.LeaderNotAvailableError if version < 5 else errors.UnknownTopicOrPartitionError
    async with running_node(num_partitions=3) as node:
        (topic,) = (await node.call(named("new"), version)).topics
        assert (topic.name, topic.error_code) == ("new", expected.code)
        assert (topic.partitions, topic.topic_id, topic.is_internal) == ([], UUID(int=0), False)
        (topic,) = (await node.call(named("new"), version)).topics
        assert (topic.error_code, len(topic.partitions)) == (0, 3)


async def test_unknown_topic_is_not_created_where_client_or_broker_says_so() -> None:
    async with running_node() as node:
        refused = await node.call(named("new", allow_auto_topic_creation=False), 9)
        assert summary(refused) == {"new": errors.UnknownTopicOrPartitionError.code}
        assert not node.broker.image.topics
    async with running_node(auto_create_topics_enable=False) as node:
        assert summary(await node.call(named("new"), 9)) == {"new": errors.UnknownTopicOrPartitionError.code}
        (internal,) = (await node.call(named("__consumer_offsets"), 9)).topics
        assert (internal.error_code, internal.is_internal) == (errors.UnknownTopicOrPartitionError.code, True)
        assert not node.broker.image.topics


async def test_the_brokers_own_topic_is_created_as_it_is_for_a_coordinator() -> None:
    async with running_node(offsets_topic_num_partitions=5, num_partitions=2) as node:
        (first,) = (await node.call(named("__consumer_offsets"), 9)).topics
        assert (first.error_code, first.is_internal) == (errors.UnknownTopicOrPartitionError.code, True)
        (then,) = (await node.call(named("__consumer_offsets"), 9)).topics
        assert (then.error_code, then.is_internal, len(then.partitions)) == (0, True, 5)


async def test_topic_that_cannot_be_created_is_unknown_and_the_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    """As in Kafka 4, the broker answers before the controller finds the problem."""
    caplog.set_level(logging.INFO, "triokafka.broker_stub.request.auto_topic_creation")
    async with running_node(default_replication_factor=3) as node:
        await node.create("of_dots")
        for name, why in (("new", "InvalidReplicationFactorError"), ("of.dots", "InvalidTopicError")):
            for version in (9, 0):
                answer = await node.call(named(name), version)
                assert summary(answer) == {name: errors.UnknownTopicOrPartitionError.code}
            assert f"automatic creation of topic {name!r} failed: {why}: " in caplog.text
        assert set(node.broker.image.topics) == {"of_dots"}


async def test_creation_that_fails_as_a_whole_leaves_the_rest_of_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    """For example because the disk cannot be written."""
    caplog.set_level(logging.INFO, "triokafka.broker_stub.request.auto_topic_creation")

    async def fails(*_: object, **__: object) -> None:
        raise errors.KafkaStorageError("the disk is gone")

    async with running_node() as node:
        await node.create("t")
        node.broker.gateway.create_topics = fails  # type: ignore[method-assign, assignment]
        answer = await node.call(named("new", "t"), 9)
        assert summary(answer) == {"t": 0, "new": errors.UnknownTopicOrPartitionError.code}
    assert "automatic creation of topics new failed" in caplog.text


async def test_topics_are_answered_in_the_order_of_kafka() -> None:
    """Existing topics, invalid names, missing topics and unauthorized ones, in the order of the request."""
    async with running_node(authorizer=DenyTopic()) as node:
        for name in ("b", "a"):
            await node.create(name)
        answer = await node.call(named("secret", "new", "bad name", "b", "newer", "a"), 9)
        assert list(summary(answer).items()) == [
            ("b", 0),
            ("a", 0),
            ("bad name", errors.InvalidTopicError.code),
            ("new", errors.UnknownTopicOrPartitionError.code),
            ("newer", errors.UnknownTopicOrPartitionError.code),
            ("secret", errors.TopicAuthorizationFailedError.code),
        ]


@pytest.mark.parametrize("name", ["", ".", "no spaces", "x" * 250])
async def test_impossible_name_is_an_error_of_its_own(name: str) -> None:
    async with running_node() as node:
        assert summary(await node.call(named(name), 9)) == {name: errors.InvalidTopicError.code}


@pytest.mark.parametrize("beside", [None, ""], ids=["no-name", "empty-name"])
async def test_topics_are_found_by_id_from_version_12(beside: str | None) -> None:
    """Unknown ids are answered with the id and no name. Java's consumer sends an empty one with its
    ids, for topics that the broker has matched with its pattern."""
    async with running_node() as node:
        await node.create("t")
        known, unknown = node.broker.image.topics["t"].topic_id, UUID(int=7)
        request = MetadataRequest(
            topics=[MetadataRequestTopic(topic_id=topic_id, name=beside) for topic_id in (known, unknown)]
        )
        for version in (12, 13):
            absent, found = (await node.call(request, version)).topics
            assert (found.name, found.topic_id, found.error_code) == ("t", known, 0)
            assert (absent.name, absent.topic_id) == (None, unknown)
            assert absent.error_code == errors.UnknownTopicIdError.code
        for version in (10, 11):
            codes = [topic.error_code for topic in (await node.call(request, version)).topics]
            assert codes == [errors.InvalidRequestError.code] * 2


async def test_authorized_operations_are_named_when_asked_for() -> None:
    """(KIP-430)."""
    async with running_node() as node:
        await node.create("t")
        request = named("t", include_topic_authorized_operations=True, include_cluster_authorized_operations=True)
        response = await node.call(request, 8)
        assert response.topics[0].topic_authorized_operations == TOPIC_OPERATIONS
        assert response.cluster_authorized_operations > 0
        absent = await node.call(named("new", include_topic_authorized_operations=True), 8)
        assert absent.topics[0].topic_authorized_operations == TOPIC_OPERATIONS


async def test_clients_of_another_listener_are_given_its_address() -> None:
    async with running_node(
        listeners=("PLAINTEXT://127.0.0.1:0", "OTHER://127.0.0.1:0"),
        listener_security_protocol_map=("PLAINTEXT:PLAINTEXT", "OTHER:PLAINTEXT"),
        advertised_listeners=("OTHER://other.example:1234",),
    ) as node:
        response = await node.call(MetadataRequest(topics=[]), 9, listener="OTHER")
        assert [(b.host, b.port) for b in response.brokers] == [("other.example", 1234)]
        response = await node.call(MetadataRequest(topics=[]), 9)
        assert [b.host for b in response.brokers] == ["127.0.0.1"]


class DenyCreation(Authorizer):
    """Nobody creates a topic."""

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        return operation is not AclOperation.CREATE


async def test_client_without_create_permission_is_refused_only_where_a_topic_would_be_created() -> None:
    async with running_node(authorizer=DenyCreation()) as node:
        answer = await node.call(named("new"), 9)
        assert summary(answer) == {"new": errors.TopicAuthorizationFailedError.code}
        answer = await node.call(named("new", allow_auto_topic_creation=False), 9)
        assert summary(answer) == {"new": errors.UnknownTopicOrPartitionError.code}
        assert not node.broker.image.topics
    async with running_node(authorizer=DenyCreation(), auto_create_topics_enable=False) as node:
        assert summary(await node.call(named("new"), 9)) == {"new": errors.UnknownTopicOrPartitionError.code}


class DenyTopic(Authorizer):
    """Denies everything about one topic."""

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        return name != "secret"


async def test_denied_topic_is_neither_described_nor_created() -> None:
    """One forbidden topic does not fail the others."""
    async with running_node(authorizer=DenyTopic()) as node:
        await node.create("t")
        response = await node.call(named("secret", "t"), 9)
        assert summary(response) == {"secret": errors.TopicAuthorizationFailedError.code, "t": 0}
        assert "secret" not in node.broker.image.topics


@pytest.mark.parametrize("version", range(0, 3))
async def test_describe_cluster_names_brokers_and_controller(version: int) -> None:
    """(KIP-700)."""
    async with running_node(broker_rack="r1") as node:
        response = await node.call(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
        assert (response.error_code, response.cluster_id) == (0, node.broker.cluster_id)
        assert response.controller_id == 1
        (broker,) = response.brokers
        assert (broker.broker_id, broker.rack, broker.is_fenced) == (1, "r1", False)
        assert f"{broker.host}:{broker.port}" == node.broker.bootstrap_servers
        assert response.cluster_authorized_operations > 0


async def test_describe_cluster_does_not_answer_for_controllers() -> None:
    """(KIP-919)."""
    async with running_node() as node:
        response = await node.call(DescribeClusterRequest(endpoint_type=2), 1)
        assert response.error_code == errors.MismatchedEndpointTypeError.code
        response = await node.call(DescribeClusterRequest(endpoint_type=9), 1)
        assert response.error_code == errors.UnsupportedEndpointTypeError.code


async def pages(node: Node, limit: int, *names: str) -> list[list[tuple[str | None, list[int]]]]:
    """All pages of DescribeTopicPartitions."""
    result: list[list[tuple[str | None, list[int]]]] = []
    cursor: Cursor | None = None
    while True:
        response = await node.call(
            DescribeTopicPartitionsRequest(
                topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=cursor
            ),
            0,
        )
        result.append([(topic.name, [p.partition_index for p in topic.partitions]) for topic in response.topics])
        cursor = response.next_cursor
        if cursor is None:
            return result


async def test_topics_with_many_partitions_come_in_pages() -> None:
    """In the order of their names (KIP-966)."""
    async with running_node() as node:
        await node.create("b", partitions=3)
        await node.create("a", partitions=2)
        assert await pages(node, 100) == [[("a", [0, 1]), ("b", [0, 1, 2])]]
        assert await pages(node, 2) == [[("a", [0, 1])], [("b", [0, 1])], [("b", [2])]]
        assert await pages(node, 3, "b", "a") == [[("a", [0, 1]), ("b", [0])], [("b", [1, 2])]]
        assert await pages(node, 3, "absent", "a") == [[("a", [0, 1]), ("absent", [])]]


async def test_described_partitions_have_lists_rather_than_null() -> None:
    """The Java client counts on it."""
    async with running_node() as node:
        await node.create("t")
        response = await node.call(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")]), 0)
        (partition,) = response.topics[0].partitions
        assert partition.eligible_leader_replicas == partition.last_known_elr == partition.offline_replicas == []
        assert response.topics[0].topic_authorized_operations == TOPIC_OPERATIONS


_OF_TELEMETRY = {71, 72}
"""Advertised while there are subscriptions (KIP-714)."""


@pytest.mark.parametrize("version", range(0, 5))
async def test_api_versions_come_from_the_table_of_handlers(version: int) -> None:
    """Produce is advertised from version 0 (KAFKA-18659)."""
    async with running_node() as node:
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
        response = await node.call(request, version)
        ranges = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        assert ranges[0] == (0, 13)
        assert ranges[1] == (4, 18)
        assert ranges[18] == (0, 4)
        assert set(ranges) == set(node.broker.dispatcher.handlers) - _OF_TELEMETRY
        assert [ranges[key] for key in (24, 25, 26, 27, 28)] == [(0, 5), (0, 4), (0, 5), (1, 2), (0, 5)]
        if version >= 3:
            assert response.finalized_features_epoch >= 0
            assert "metadata.version" in {feature.name for feature in response.finalized_features}
            lowest = min(feature.min_version for feature in response.supported_features)
            assert lowest > 0 or version >= 4


@pytest.mark.parametrize("name", ["", "-x", "a b"])
async def test_software_with_an_impossible_name_is_refused(name: str) -> None:
    """(KIP-511)."""
    async with running_node() as node:
        request = ApiVersionsRequest(client_software_name=name, client_software_version="1.0")
        response = await node.call(request, 3)
        assert response.error_code == errors.InvalidRequestError.code


async def test_bytes_behind_a_request_are_ignored() -> None:
    """As Kafka does; librdkafka's request for all topics, recorded, has three bytes too many."""
    recorded = bytes.fromhex("0003000d00000003000772646b61666b610000000000010000")
    async with running_node() as node:
        await node.create("t")
        slot = await node.broker.sockets.slots.acquire()
        answer = await node.broker.dispatcher.dispatch(
            bytearray(recorded), slot=slot, principal="User:test", listener="PLAINTEXT", peer=("192.0.2.1", 5)
        )
        _, response = decode_response(MetadataResponse, b"".join(answer.parts)[4:], version=13)  # type: ignore[arg-type]
        assert list(summary(response)) == ["t"]
