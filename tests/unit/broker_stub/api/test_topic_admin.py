"""CreateTopics, DeleteTopics and CreatePartitions, through their encoding in every version."""

from __future__ import annotations

import errno
import uuid
from collections.abc import Collection

import pytest
import trio

from tests.unit.broker_stub.api.node import Node, batch, memory_world, running_node
from tests.unit.broker_stub.clusters import MemoryWorld
from triokafka import errors
from triokafka.broker_stub.authorizer import Authorizer
from triokafka.protocol.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from triokafka.protocol.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from triokafka.protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from triokafka.security.acl import CLUSTER_NAME, AclOperation, ResourceType
from triokafka.structs import TopicPartition
from triokafka.world.memory import DiskFault

NO_ID = uuid.UUID(int=0)
DENIED = errors.TopicAuthorizationFailedError.code


class Denying(Authorizer):
    """Denies these operations on these topics, and on the cluster, which would permit them for all topics."""

    def __init__(self, operations: Collection[AclOperation], names: Collection[str]) -> None:
        self.operations = operations
        self.names = names

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        return operation not in self.operations or name not in {*self.names, CLUSTER_NAME}


def wanted(name: str, partitions: int = 1, **configs: str) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


async def create(node: Node, *topics: CreatableTopic, version: int = 7) -> list[int]:
    response = await node.call(CreateTopicsRequest(topics=list(topics), timeout_ms=1000), version)
    assert [topic.name for topic in response.topics] == [topic.name for topic in topics]
    return [topic.error_code for topic in response.topics]


@pytest.mark.parametrize("version", range(2, 8))
async def test_topic_is_created_in_every_version(version: int) -> None:
    async with running_node() as node:
        request = CreateTopicsRequest(topics=[wanted("t", 2, retention_ms="5"), wanted("bad name")], timeout_ms=1000)
        made, bad = (await node.call(request, version)).topics
        assert (made.error_code, made.error_message) == (0, None)
        assert bad.error_code == errors.InvalidTopicError.code and bad.error_message
        topic = node.broker.image.topics["t"]
        assert sorted(topic.partitions) == [0, 1]
        assert made.topic_id == (topic.topic_id if version >= 7 else NO_ID)
        if version >= 5:
            assert (made.num_partitions, made.replication_factor) == (2, 1)
            assert made.configs is not None and bad.configs is not None
            assert ("retention.ms", "5") in [(config.name, config.value) for config in made.configs]


async def test_topic_can_be_written_as_soon_as_it_is_answered() -> None:
    async with running_node() as node:
        assert await create(node, wanted("t")) == [0]
        assert (await node.produce("t", batch(b"x"))).error_code == 0


async def test_validate_only_creates_nothing() -> None:
    async with running_node() as node:
        request = CreateTopicsRequest(topics=[wanted("t")], timeout_ms=1000, validate_only=True)
        assert (await node.call(request, 7)).topics[0].error_code == 0
        assert "t" not in node.broker.image.topics


async def test_denied_topics_fail_alone_and_in_their_place() -> None:
    async with running_node(authorizer=Denying([AclOperation.CREATE], ["no"])) as node:
        assert await create(node, wanted("a"), wanted("no"), wanted("b")) == [0, DENIED, 0]
        assert set(node.broker.image.topics) == {"a", "b"}


async def test_configuration_is_omitted_without_describe_configs_permission() -> None:
    async with running_node(authorizer=Denying([AclOperation.DESCRIBE_CONFIGS], ["t"])) as node:
        (made,) = (await node.call(CreateTopicsRequest(topics=[wanted("t")], timeout_ms=1000), 7)).topics
        assert (made.error_code, made.topic_config_error_code, made.configs) == (0, DENIED, [])


async def test_expired_request_reports_a_timeout_for_every_topic() -> None:
    async with running_node() as node:
        request = CreateTopicsRequest(topics=[wanted("a"), wanted("b")], timeout_ms=0)
        response = await node.call(request, 7)
        assert [topic.error_code for topic in response.topics] == [errors.RequestTimedOutError.code] * 2


async def test_full_disk_is_an_error_for_every_topic_and_the_broker_continues() -> None:
    world = MemoryWorld()
    async with running_node(world=world) as node:
        heal = world.disk.inject(DiskFault("write", "*/__cluster_metadata-0/*.log", errno.ENOSPC))
        assert await create(node, wanted("a"), wanted("b")) == [errors.KafkaStorageError.code] * 2
        heal()
        # The failed append ended the controller's term: until it leads again, clients retry NOT_CONTROLLER.
        with trio.fail_after(5):
            while (answer := await create(node, wanted("a"))) == [errors.NotControllerError.code]:
                await trio.sleep(0.01)
        assert answer == [0]


@pytest.mark.parametrize("version", range(1, 7))
async def test_topic_is_deleted_in_every_version(version: int) -> None:
    async with running_node() as node:
        await node.create("t")
        topic_id = node.broker.image.topics["t"].topic_id
        request = DeleteTopicsRequest(timeout_ms=1000)
        if version >= 6:
            request.topics = [DeleteTopicState(topic_id=topic_id), DeleteTopicState(name="nope")]
        else:
            request.topic_names = ["t", "nope"]
        gone, unknown = (await node.call(request, version)).responses
        assert (gone.name, gone.error_code) == ("t", 0)
        assert gone.topic_id == (topic_id if version >= 6 else NO_ID)
        assert (unknown.name, unknown.error_code) == ("nope", errors.UnknownTopicOrPartitionError.code)
        assert not node.broker.image.topics
        assert node.broker.logs.get(TopicPartition("t", 0)) is None


async def test_name_is_free_and_empty_after_deletion() -> None:
    async with running_node() as node:
        await node.create("t")
        await node.produce("t", batch(b"old"))
        await node.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        await node.create("t")
        produced = await node.produce("t", batch(b"new"))
        assert (produced.error_code, produced.base_offset) == (0, 0)


@pytest.mark.parametrize(
    ("version", "error"), [(2, errors.InvalidRequestError), (5, errors.TopicDeletionDisabledError)]
)
async def test_deletion_that_is_switched_off_is_refused_for_every_topic(
    version: int, error: type[errors.BrokerResponseError]
) -> None:
    async with running_node(delete_topic_enable=False) as node:
        await node.create("t")
        response = await node.call(DeleteTopicsRequest(topic_names=["t", "u"], timeout_ms=1000), version)
        assert [topic.error_code for topic in response.responses] == [error.code] * 2
        assert "t" in node.broker.image.topics


async def test_topics_that_may_not_be_deleted_stay() -> None:
    """The existence of a topic is hidden from users who may not describe it."""
    async with running_node(authorizer=Denying([AclOperation.DELETE], ["no", "nope"])) as node:
        await node.create("yes")
        await node.create("no")
        response = await node.call(DeleteTopicsRequest(topic_names=["no", "yes", "nope"], timeout_ms=1000), 5)
        assert [topic.error_code for topic in response.responses] == [
            DENIED,
            0,
            errors.UnknownTopicOrPartitionError.code,
        ]
        assert set(node.broker.image.topics) == {"no"}
    async with running_node(authorizer=Denying([AclOperation.DELETE, AclOperation.DESCRIBE], ["nope"])) as node:
        response = await node.call(DeleteTopicsRequest(topic_names=["nope"], timeout_ms=1000), 5)
        assert response.responses[0].error_code == DENIED


async def test_authorizer_gets_the_name_for_an_id() -> None:
    """Only users who may describe the topic get its name."""
    for also, name in (([], "no"), ([AclOperation.DESCRIBE], None)):
        async with running_node(authorizer=Denying([AclOperation.DELETE, *also], ["no"])) as node:
            await node.create("no")
            topic_id = node.broker.image.topics["no"].topic_id
            request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic_id)], timeout_ms=1000)
            (answer,) = (await node.call(request, 6)).responses
            assert (answer.error_code, answer.name, answer.topic_id) == (DENIED, name, topic_id)
            assert "no" in node.broker.image.topics


@pytest.mark.parametrize("version", range(0, 4))
async def test_topic_grows_in_every_version(version: int) -> None:
    async with running_node() as node:
        await node.create("t", 2)
        topics = [
            CreatePartitionsTopic(name="t", count=3, assignments=None),
            CreatePartitionsTopic(name="nope", count=3, assignments=None),
        ]
        request = CreatePartitionsRequest(topics=topics, timeout_ms=1000)
        grown, unknown = (await node.call(request, version)).results
        assert (grown.name, grown.error_code, grown.error_message) == ("t", 0, None)
        assert unknown.error_code == errors.UnknownTopicOrPartitionError.code and unknown.error_message
        assert (await node.produce("t", batch(b"x"), partition=2)).error_code == 0


async def test_topics_that_may_not_be_altered_do_not_grow() -> None:
    async with running_node(authorizer=Denying([AclOperation.ALTER], ["no"])) as node:
        await node.create("no")
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="no", count=3, assignments=None)], timeout_ms=1000
        )
        assert [topic.error_code for topic in (await node.call(request, 3)).results] == [DENIED]
        assert len(node.broker.image.topics["no"].partitions) == 1


async def test_topics_and_records_are_there_after_a_restart() -> None:
    world = memory_world()
    async with running_node(world=world) as node:
        await node.create("t", 3, retention_ms="-1")
        await node.produce("t", batch(b"x", b"y"), partition=1)
        topic_id = node.broker.image.topics["t"].topic_id
    async with running_node(world=world) as node:
        assert node.broker.image.topics["t"].topic_id == topic_id
        assert node.broker.image.topic_configs("t") == {"retention.ms": "-1"}
        assert (await node.produce("t", batch(b"z"), partition=1)).base_offset == 2
