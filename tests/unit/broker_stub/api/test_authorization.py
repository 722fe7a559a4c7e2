"""An authorizer that denies one thing at a time is asked, and what it denies is refused by item (`broker-log/B08`).

Two topics are in every request that can name several: ``open`` is allowed whatever happens to ``shut``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.unit.broker_stub.api.node import Node, batch, running_node
from triokafka import errors
from triokafka.broker_stub.authorizer import CLUSTER_NAME, AllowAll, Authorizer, Operation, ResourceType
from triokafka.protocol.api.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from triokafka.protocol.api.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from triokafka.protocol.api.fetch import FetchPartition, FetchRequest, FetchTopic
from triokafka.protocol.api.find_coordinator import FindCoordinatorRequest
from triokafka.protocol.api.init_producer_id import InitProducerIdRequest
from triokafka.protocol.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from triokafka.protocol.api.metadata import MetadataRequest, MetadataRequestTopic
from triokafka.protocol.api.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from triokafka.protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TOPICS = ("open", "shut")
TOPIC = errors.TopicAuthorizationFailedError.code
GROUP = errors.GroupAuthorizationFailedError.code
CLUSTER = errors.ClusterAuthorizationFailedError.code


class DenyOne(Authorizer):
    """Denies one operation on one resource, once it is armed."""

    def __init__(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        self._denied = (operation, resource_type, name)

    def allows(self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return (operation, resource_type, name) != self._denied


class Case(NamedTuple):
    """A request for both topics, what to deny, and the codes that come back by item."""

    name: str
    version: int
    denied: tuple[Operation, ResourceType, str]
    request: Callable[[Node], Any]
    codes: Callable[[Any], dict[str, int]]
    refused: dict[str, int]


def partitions(field: str, name: str = "name") -> Callable[[Any], dict[str, int]]:
    """Codes of each topic's first partition."""
    return lambda response: {
        getattr(topic, name): getattr(topic, field)[0].error_code
        for topic in getattr(response, "topics", None) or response.responses
    }


def produce(node: Node) -> ProduceRequest:
    """One batch for each."""
    data = [PartitionProduceData(index=0, records=batch(b"v"))]
    return ProduceRequest(
        acks=-1, timeout_ms=100, topic_data=[TopicProduceData(name=name, partition_data=data) for name in TOPICS]
    )


def fetch(node: Node) -> FetchRequest:
    """The first partition of each."""
    asked = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)]
    return FetchRequest(max_bytes=100, topics=[FetchTopic(topic=name, partitions=asked) for name in TOPICS])


def fetch_by_id(node: Node) -> FetchRequest:
    """The same, by topic id."""
    request = fetch(node)
    for topic in request.topics:
        topic.topic_id = node.broker.image.topics[topic.topic].topic_id
    return request


CASES = [
    Case(
        "produce",
        9,
        (Operation.WRITE, ResourceType.TOPIC, "shut"),
        produce,
        partitions("partition_responses"),
        {"open": 0, "shut": TOPIC},
    ),
    Case(
        "fetch",
        11,
        (Operation.READ, ResourceType.TOPIC, "shut"),
        fetch,
        partitions("partitions", "topic"),
        {"open": 0, "shut": TOPIC},
    ),
    Case(
        "list offsets",
        7,
        (Operation.DESCRIBE, ResourceType.TOPIC, "shut"),
        lambda node: ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
                for name in TOPICS
            ],
        ),
        partitions("partitions"),
        {"open": 0, "shut": TOPIC},
    ),
    Case(
        "offset for leader epoch",
        4,
        (Operation.DESCRIBE, ResourceType.TOPIC, "shut"),
        lambda node: OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderTopic(topic=name, partitions=[OffsetForLeaderPartition(partition=0)]) for name in TOPICS
            ]
        ),
        partitions("partitions", "topic"),
        {"open": 0, "shut": TOPIC},
    ),
    Case(
        "delete records",
        2,
        (Operation.DELETE, ResourceType.TOPIC, "shut"),
        lambda node: DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])
                for name in TOPICS
            ]
        ),
        partitions("partitions"),
        {"open": 0, "shut": TOPIC},
    ),
    Case(
        "metadata",
        9,
        (Operation.DESCRIBE, ResourceType.TOPIC, "shut"),
        lambda node: MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in TOPICS]),
        lambda response: {topic.name: topic.error_code for topic in response.topics},
        {"open": 0, "shut": TOPIC},
    ),
    Case(
        "metadata of all topics",
        9,
        (Operation.DESCRIBE, ResourceType.TOPIC, "shut"),
        lambda node: MetadataRequest(topics=None),
        lambda response: {topic.name: topic.error_code for topic in response.topics},
        {"open": 0},
    ),
    Case(
        "describe topic partitions",
        0,
        (Operation.DESCRIBE, ResourceType.TOPIC, "shut"),
        lambda node: DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in TOPICS]),
        lambda response: {topic.name: topic.error_code for topic in response.topics},
        {"open": 0, "shut": TOPIC},
    ),
    Case(
        "describe all topic partitions",
        0,
        (Operation.DESCRIBE, ResourceType.TOPIC, "shut"),
        lambda node: DescribeTopicPartitionsRequest(),
        lambda response: {topic.name: topic.error_code for topic in response.topics},
        {"open": 0},
    ),
    Case(
        "find coordinator",
        4,
        (Operation.DESCRIBE, ResourceType.GROUP, "shut"),
        lambda node: FindCoordinatorRequest(coordinator_keys=list(TOPICS)),
        lambda response: {found.key: found.error_code for found in response.coordinators},
        {"open": 0, "shut": GROUP},
    ),
    Case(
        "init producer id",
        4,
        (Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME),
        lambda node: InitProducerIdRequest(transactional_id=None),
        lambda response: {"all": response.error_code},
        {"all": CLUSTER},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_denied_item_is_refused_and_the_others_are_served(case: Case) -> None:
    """With everything allowed, everything is served."""
    for authorizer, expected in ((DenyOne(*case.denied), case.refused), (AllowAll(), None)):
        async with running_node(authorizer=authorizer) as node:
            for name in TOPICS:
                await node.create(name)
            codes = case.codes(await node.call(case.request(node), case.version))
            assert codes == expected if expected is not None else set(codes.values()) == {0}


async def test_denied_topic_is_refused_by_its_id_too() -> None:
    """And in a session, where requests do not name it at all (`broker-log/P08`)."""
    async with running_node(authorizer=DenyOne(Operation.READ, ResourceType.TOPIC, "shut")) as node:
        for name in TOPICS:
            await node.create(name)
        request = fetch_by_id(node)
        request.session_epoch = 0
        opened = await node.call(request, 17)
        assert [topic.partitions[0].error_code for topic in opened.responses] == [0, TOPIC]
        again = await node.call(FetchRequest(session_id=opened.session_id, session_epoch=1), 17)
        assert [topic.partitions[0].error_code for topic in again.responses] == [TOPIC]


async def test_topic_is_not_created_for_who_may_not_create_it() -> None:
    """Permission for the topic or for the cluster suffices (`cluster/MDC-12`)."""

    class MayNotCreate(Authorizer):
        def __init__(self, *resource_types: ResourceType) -> None:
            self._denied = resource_types

        def allows(
            self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
        ) -> bool:
            return operation is not Operation.CREATE or resource_type not in self._denied

    both = (ResourceType.TOPIC, ResourceType.CLUSTER)
    for denied, code in ((both, TOPIC), (both[:1], 0), (both[1:], 0)):
        async with running_node(authorizer=MayNotCreate(*denied)) as node:
            (topic,) = (await node.call(MetadataRequest(topics=[MetadataRequestTopic(name="new")]), 9)).topics
            assert topic.error_code == code
            assert ("new" in node.broker.image.topics) == (code == 0)
