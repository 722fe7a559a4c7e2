"""A fault that names a topic, a partition or a group concerns that item, in every API; the rest stays real."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.broker_stub.api.node import Node, batch, running_node
from tests.unit.broker_stub.api.samples import GROUP, ITEMS, codes_by_item, filled
from triokafka import errors
from triokafka.broker_stub.api import Handlers
from triokafka.broker_stub.faults.faults import INJECTED, Fault
from triokafka.protocol.api.metadata import MetadataRequest, MetadataRequestTopic

HANDLERS = {handler.name: handler for handler in Handlers().values()}
ERROR = errors.KafkaStorageError
CODE = ERROR.code


async def ask(node: Node, api: str, version: int, change: Callable[[Any], object] = lambda request: None) -> Any:
    """A request about both topics, or both groups."""
    topics = node.broker.image.topics
    ids = {name: topics[name].topic_id for name in ITEMS if name in topics}
    request = filled(HANDLERS[api].request_type, version, ids)
    change(request)
    return await node.call(request, version)


def codes(node: Node, response: Any) -> dict[str, int]:
    """By item, whether the fault hit it."""
    return codes_by_item(response, {topic.topic_id: topic.name for topic in node.broker.image.topics.values()})


def set_type(request: Any) -> None:
    for resource in request.resources:
        resource.resource_type = 2


def set_simple(request: Any) -> None:
    request.generation_id_or_member_epoch = -1


@pytest.mark.parametrize(
    ("api", "version", "change"),
    [
        ("Metadata", 9, None),
        ("Metadata", 12, None),
        ("Metadata", 13, None),
        ("OffsetCommit", 8, set_simple),
        ("OffsetCommit", 10, set_simple),
        ("OffsetFetch", 5, None),
        ("OffsetFetch", 10, None),
        ("CreateTopics", 7, None),
        ("DeleteTopics", 5, None),
        ("DeleteRecords", 2, None),
        ("OffsetForLeaderEpoch", 4, None),
        ("DescribeConfigs", 4, set_type),
        ("AlterConfigs", 2, set_type),
        ("IncrementalAlterConfigs", 1, set_type),
        ("CreatePartitions", 3, None),
        ("DescribeProducers", 0, None),
        ("DescribeTopicPartitions", 0, lambda request: setattr(request, "cursor", None)),
    ],
)
async def test_topic_that_a_fault_names_fails_alone(
    api: str, version: int, change: Callable[[Any], object] | None
) -> None:
    """Once, and the next request succeeds as it would have."""
    async with running_node() as node:
        await node.broker.topic_creation.ensure("__consumer_offsets")
        for name in ITEMS if api != "CreateTopics" else ():
            await node.create(name)
        node.broker.faults.arm(Fault(ERROR, HANDLERS[api].api_key, topic="shut"))
        found = codes(node, await ask(node, api, version, change or (lambda request: None)))
        assert found["shut"] == CODE
        assert found["open"] != CODE
        assert not node.broker.faults.armed
        assert CODE not in codes(node, await ask(node, api, version, change or (lambda request: None))).values()


async def test_faulty_item_is_not_changed() -> None:
    """No topic is created, no position stored, no record deleted."""
    async with running_node() as node:
        await node.broker.topic_creation.ensure("__consumer_offsets")
        node.broker.faults.arm(Fault(ERROR, HANDLERS["CreateTopics"].api_key, topic="shut"))
        answer = await ask(node, "CreateTopics", 7, plain_topics)
        assert {topic.name: topic.error_message for topic in answer.topics} == {"open": None, "shut": INJECTED}
        assert "open" in node.broker.image.topics and "shut" not in node.broker.image.topics
        await node.create("shut")
        for name in ITEMS:
            await node.produce(name, batch(b"v"))
        node.broker.faults.arm(Fault(ERROR, HANDLERS["OffsetCommit"].api_key, topic="shut", partition=0))
        await ask(node, "OffsetCommit", 8, set_simple)
        fetched = await ask(node, "OffsetFetch", 5)
        positions = {topic.name: topic.partitions[0].committed_offset for topic in fetched.topics}
        assert positions == {"open": 0, "shut": -1}
        node.broker.faults.arm(Fault(ERROR, HANDLERS["DeleteRecords"].api_key, topic="shut"))
        await ask(node, "DeleteRecords", 2, all_records)
        assert [(await node.fetch(name, 1))[0].log_start_offset for name in ITEMS] == [1, 0]


def plain_topics(request: Any) -> None:
    for topic in request.topics:
        topic.num_partitions, topic.replication_factor, topic.assignments, topic.configs = 1, 1, [], []


def all_records(request: Any) -> None:
    for topic in request.topics:
        topic.partitions[0].offset = -1


async def test_partition_of_metadata_fails_alone_and_everything_else_is_there() -> None:
    """The answer has its topic, the other partitions and the brokers."""
    async with running_node() as node:
        await node.create("t", 3)
        node.broker.faults.arm(Fault(errors.LeaderNotAvailableError, 3, topic="t", partition=1))
        answer = await node.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
        (topic,) = answer.topics
        assert topic.error_code == 0 and answer.brokers
        found = {partition.partition_index: partition.error_code for partition in topic.partitions}
        assert found == {0: 0, 1: errors.LeaderNotAvailableError.code, 2: 0}


@pytest.mark.parametrize(("api", "version"), [("FindCoordinator", 4), ("DescribeGroups", 5), ("DeleteGroups", 2)])
async def test_group_that_a_fault_names_fails_alone(api: str, version: int) -> None:
    """Where a request is about several."""
    async with running_node() as node:
        await node.broker.topic_creation.ensure("__consumer_offsets")
        node.broker.faults.arm(Fault(ERROR, HANDLERS[api].api_key, group="shut"))
        found = codes(node, await ask(node, api, version))
        assert (found["shut"], found["open"] != CODE) == (CODE, True)


@pytest.mark.parametrize(("api", "version"), [("Heartbeat", 4), ("JoinGroup", 5), ("OffsetCommit", 8)])
async def test_request_of_the_group_that_a_fault_names_fails_as_a_whole(api: str, version: int) -> None:
    """Requests of other groups succeed."""
    async with running_node() as node:
        node.broker.faults.arm(Fault(ERROR, group="other"))
        node.broker.faults.arm(Fault(ERROR, group=GROUP))
        assert set(codes(node, await ask(node, api, version)).values()) == {CODE}
        assert len(node.broker.faults.all) == 1
        assert CODE not in codes(node, await ask(node, api, version)).values()


async def test_fault_of_any_api_waits_for_the_item_that_it_names() -> None:
    """Whatever is asked of it first."""
    async with running_node() as node:
        for name in ITEMS:
            await node.create(name)
        node.broker.faults.arm(Fault(ERROR, topic="shut", times=2))
        await node.call(MetadataRequest(topics=[MetadataRequestTopic(name="open")]), 9)
        assert codes(node, await ask(node, "Metadata", 9)) == {"open": 0, "shut": CODE}
        assert (await node.produce("shut", batch(b"v"))).error_code == CODE
        assert not node.broker.faults.armed
