"""With an authorizer that denies one thing at a time, the denied items are refused, and no others.

A row names an API, what is denied, and which items are refused then, with which error; all others are served. Where a
request can name several topics or groups, it is about ``open``, which is allowed whatever happens to ``shut``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest

from tests.unit.broker_stub.api.node import Node, running_node
from tests.unit.broker_stub.api.samples import GROUP as ONE_GROUP
from tests.unit.broker_stub.api.samples import ITEMS, codes_by_item, filled
from triokafka import errors
from triokafka.broker_stub.api import Handlers
from triokafka.broker_stub.authorizer import Access, Authorizer
from triokafka.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from triokafka.protocol.api.describe_cluster import DescribeClusterRequest
from triokafka.protocol.api.fetch import FetchRequest
from triokafka.protocol.api.metadata import MetadataRequestTopic
from triokafka.protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from triokafka.security.acl import CLUSTER_NAME, AclOperation, ResourceType

Denied = tuple[AclOperation, ResourceType, str]

HANDLERS: Final = {handler.name: handler for handler in Handlers().values()}
TOPIC: Final = errors.TopicAuthorizationFailedError.code
GROUP: Final = errors.GroupAuthorizationFailedError.code
CLUSTER: Final = errors.ClusterAuthorizationFailedError.code
TRANSACTIONAL_ID: Final = errors.TransactionalIdAuthorizationFailedError.code
REFUSALS: Final = {TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID}
BOTH_TOPICS: Final = {"open": TOPIC, "shut": TOPIC}
ASKED_OF_NOTHING: Final = {
    "ApiVersions",
    "SaslAuthenticate",
    "SaslHandshake",
    "RenewDelegationToken",
    "ExpireDelegationToken",
    "GetTelemetrySubscriptions",
    "PushTelemetry",
}
"""Every client may ask for versions and authenticate; owners and renewers of a token may change it."""


class Deny(Authorizer):
    """Denies the operations that the test chose, and records its calls."""

    def __init__(self, *denied: Denied) -> None:
        self._denied = denied
        self.asked: set[Denied] = set()

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        assert (principal, host) == ("User:test", "192.0.2.1")
        self.asked.add((operation, resource_type, name))
        return (operation, resource_type, name) not in self._denied

    def allowed_operations(self, principal: str, host: str, resource_type: ResourceType, name: str) -> int:
        asked = set(self.asked)
        allowed = super().allowed_operations(principal, host, resource_type, name)
        self.asked = asked  # the answer only reports permissions; nothing depends on them
        return allowed

    def allows_somewhere(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        return self.allows(principal, host, operation, resource_type, "")


def topic(operation: AclOperation, name: str = "shut") -> Denied:
    """Something that is not allowed with a topic."""
    return operation, ResourceType.TOPIC, name


def group(operation: AclOperation, name: str = ONE_GROUP) -> Denied:
    """Something that is not allowed with a group."""
    return operation, ResourceType.GROUP, name


def cluster(operation: AclOperation) -> Denied:
    """Something that is not allowed with the cluster."""
    return operation, ResourceType.CLUSTER, CLUSTER_NAME


class Row(NamedTuple):
    """An API in a version, what is denied, and the refused items with their errors.

    ``hidden`` are items that must not be in the answer at all.
    """

    api: str
    version: int
    denied: tuple[Denied, ...]
    refused: dict[str, int]
    change: Callable[[Any], None] = lambda request: None
    hidden: tuple[str, ...] = ()

    def __str__(self) -> str:
        what = " and ".join(f"{operation.name} {kind.name} {name}" for operation, kind, name in self.denied)
        return f"{self.api} v{self.version} without {what}, refused {sorted(self.refused)}"


def put(**fields: Any) -> Callable[[Any], None]:
    """Set fields of a request."""

    def change(request: Any) -> None:
        for name, value in fields.items():
            setattr(request, name, value)

    return change


def of_type(resource_type: int, *names: str) -> Callable[[Any], None]:
    """Make the resources of a request of this type, and call them so."""

    def change(request: Any) -> None:
        for resource, name in zip(request.resources, names or ITEMS, strict=False):
            resource.resource_type, resource.resource_name = resource_type, name

    return change


Op = AclOperation
_FOLLOWER = put(replica_id=5)
_SIMPLE = put(generation_id_or_member_epoch=-1)
_NEW_ID = put(transactional_id=None, producer_id=-1, producer_epoch=-1)
_NEW_TOPIC = put(topics=[MetadataRequestTopic(name="new")])
_DESCRIBE_TOPIC = (topic(Op.DESCRIBE),)
_SHUT: Final = {"shut": TOPIC}

ROWS: Final = [
    Row("Produce", 9, (topic(Op.WRITE),), _SHUT, put(acks=-1)),
    Row("Produce", 13, (topic(Op.WRITE),), _SHUT, put(acks=-1)),
    Row("Fetch", 11, (topic(Op.READ),), _SHUT),
    Row("Fetch", 17, (topic(Op.READ),), _SHUT),
    Row("Fetch", 11, (cluster(Op.CLUSTER_ACTION),), {}),
    Row("Fetch", 11, (cluster(Op.CLUSTER_ACTION),), BOTH_TOPICS, _FOLLOWER),
    Row("Fetch", 11, (topic(Op.READ),), {}, _FOLLOWER),
    Row("ListOffsets", 7, _DESCRIBE_TOPIC, _SHUT),
    Row("Metadata", 9, _DESCRIBE_TOPIC, _SHUT),
    Row("Metadata", 12, _DESCRIBE_TOPIC, _SHUT, lambda request: [put(name=None)(t) for t in request.topics] and None),  # type: ignore[arg-type]
    Row("Metadata", 9, _DESCRIBE_TOPIC, {}, put(topics=None), hidden=("shut",)),
    Row("Metadata", 9, (topic(Op.CREATE, "new"),), {}, _NEW_TOPIC),
    Row("Metadata", 9, (cluster(Op.CREATE),), {}, _NEW_TOPIC),
    Row("Metadata", 9, (cluster(Op.CREATE), topic(Op.CREATE, "new")), {"new": TOPIC}, _NEW_TOPIC),
    Row("Metadata", 9, (cluster(Op.DESCRIBE),), {}, put(include_cluster_authorized_operations=True)),
    Row("OffsetCommit", 8, (group(Op.READ),), {"open": GROUP, "shut": GROUP}),
    Row("OffsetCommit", 8, (topic(Op.READ),), _SHUT, _SIMPLE),
    Row("OffsetCommit", 10, (topic(Op.READ),), _SHUT, _SIMPLE),
    Row("OffsetFetch", 5, (group(Op.DESCRIBE),), {"all": GROUP}),
    Row("OffsetFetch", 5, _DESCRIBE_TOPIC, _SHUT),
    Row("OffsetFetch", 8, (group(Op.DESCRIBE, "shut"),), {"shut": GROUP}),
    Row("OffsetFetch", 5, _DESCRIBE_TOPIC, {}, put(topics=None), hidden=("shut",)),
    Row("FindCoordinator", 3, (group(Op.DESCRIBE),), {"all": GROUP}),
    Row("FindCoordinator", 4, (group(Op.DESCRIBE, "shut"),), {"shut": GROUP}),
    *(Row(api, version, (group(Op.READ),), {"all": GROUP})
      for api, version in (("JoinGroup", 5), ("Heartbeat", 4), ("LeaveGroup", 4), ("SyncGroup", 4))),
    Row("DescribeGroups", 5, (group(Op.DESCRIBE, "shut"),), {"shut": GROUP}),
    Row("ConsumerGroupDescribe", 1, (group(Op.DESCRIBE, "shut"),), {"shut": GROUP}),
    Row("ListGroups", 4, (cluster(Op.DESCRIBE),), {}),
    Row("ListGroups", 4, (group(Op.DESCRIBE, "shut"),), {}),
    Row("ListGroups", 4, (cluster(Op.DESCRIBE), group(Op.DESCRIBE, "shut")), {}, hidden=("shut",)),
    Row("CreateTopics", 5, (topic(Op.CREATE),), {}),
    Row("CreateTopics", 5, (cluster(Op.CREATE),), {}),
    Row("CreateTopics", 5, (cluster(Op.CREATE), topic(Op.CREATE)), _SHUT),
    Row("CreateTopics", 5, (topic(Op.DESCRIBE_CONFIGS),), {}),
    Row("DeleteTopics", 5, (topic(Op.DELETE),), {}),
    Row("DeleteTopics", 5, (cluster(Op.DELETE),), {}),
    Row("DeleteTopics", 5, (cluster(Op.DELETE), topic(Op.DELETE)), _SHUT),
    Row("DeleteTopics", 6, (cluster(Op.DELETE), topic(Op.DELETE), topic(Op.DESCRIBE)), _SHUT),
    Row("DeleteRecords", 2, (topic(Op.DELETE),), _SHUT),
    Row("InitProducerId", 4, (cluster(Op.IDEMPOTENT_WRITE),), {}, _NEW_ID),
    Row("InitProducerId", 4, (topic(Op.WRITE, ""),), {}, _NEW_ID),
    Row("InitProducerId", 4, (cluster(Op.IDEMPOTENT_WRITE), topic(Op.WRITE, "")), {"all": CLUSTER}, _NEW_ID),
    Row("OffsetForLeaderEpoch", 4, _DESCRIBE_TOPIC, {}),
    Row("OffsetForLeaderEpoch", 4, (cluster(Op.CLUSTER_ACTION),), {}),
    Row("OffsetForLeaderEpoch", 4, (cluster(Op.CLUSTER_ACTION), *_DESCRIBE_TOPIC), _SHUT),
    *(Row(api, version, (denied,), refused, change)
      for api, version, operation in (
          ("DescribeConfigs", 4, Op.DESCRIBE_CONFIGS),
          ("AlterConfigs", 2, Op.ALTER_CONFIGS),
          ("IncrementalAlterConfigs", 1, Op.ALTER_CONFIGS),
      )
      for denied, refused, change in (
          (topic(operation), _SHUT, of_type(2)),
          (group(operation, "shut"), {"shut": GROUP}, of_type(32)),
          (cluster(operation), {"1": CLUSTER, "all": CLUSTER}, of_type(4, "1", "")),
      )),
    Row("CreatePartitions", 3, (topic(Op.ALTER),), _SHUT),
    Row("DeleteGroups", 2, (group(Op.DELETE, "shut"),), {"shut": GROUP}),
    Row("OffsetDelete", 0, (group(Op.DELETE),), {"all": GROUP}),
    Row("OffsetDelete", 0, (topic(Op.READ),), _SHUT),
    Row("DescribeCluster", 1, (cluster(Op.DESCRIBE),), {}, put(include_cluster_authorized_operations=True)),
    Row("DescribeProducers", 0, (topic(Op.READ),), _SHUT),
    Row("DescribeTransactions", 0, ((Op.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "shut"),), {"shut": TRANSACTIONAL_ID}),
    Row("DescribeTopicPartitions", 0, _DESCRIBE_TOPIC, _SHUT, put(cursor=None)),
    Row("DescribeTopicPartitions", 0, _DESCRIBE_TOPIC, {}, put(cursor=None, topics=[]), hidden=("shut",)),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_denied_item_is_refused_and_the_others_are_served(row: Row) -> None:
    """The authorizer is asked about the denied operation; if it allows everything, nothing is refused."""
    for authorizer, refused in ((Deny(), {}), (Deny(*row.denied), row.refused)):
        async with running_node(authorizer=authorizer) as node:
            codes = await call(node, row)
            assert {item: code for item, code in codes.items() if code in REFUSALS} == refused
            if refused:
                assert set(row.denied) <= authorizer.asked
                assert not codes.keys() & set(row.hidden)


async def call(node: Node, row: Row) -> dict[str, int]:
    """Send the request, after creating both topics and a group unless the API creates them itself."""
    if row.api != "CreateTopics":
        for name in ITEMS:
            await node.create(name)
    if row.api.startswith("Offset"):
        await make_group(node)
    topics = node.broker.image.topics
    handler = HANDLERS[row.api]
    request = filled(handler.request_type, row.version, {name: topics[name].topic_id for name in ITEMS if topics})
    row.change(request)
    response = await node.call(request, row.version)
    return codes_by_item(response, {found.topic_id: found.name for found in node.broker.image.topics.values()})


async def make_group(node: Node) -> None:
    """A group that has a position and no members."""
    await node.broker.topic_creation.ensure("__consumer_offsets")
    topics = [OffsetCommitRequestTopic(name="open", partitions=[OffsetCommitRequestPartition(committed_offset=1)])]
    request = OffsetCommitRequest(group_id=ONE_GROUP, generation_id_or_member_epoch=-1, topics=topics)
    await node.broker.group_coordinator.offsets.commit_offsets(request, version=8)


_WHOLE: Final = {
    ResourceType.CLUSTER: (CLUSTER_NAME, CLUSTER),
    ResourceType.GROUP: (ONE_GROUP, GROUP),
    ResourceType.TOPIC: ("shut", TOPIC),
    ResourceType.TRANSACTIONAL_ID: ("", TRANSACTIONAL_ID),
}


@pytest.mark.parametrize(
    ("name", "access"),
    [(name, access) for name, handler in HANDLERS.items() for access in handler.accesses if not access.per_item],
    ids=lambda value: value if isinstance(value, str) else value.resource_type.name,
)
async def test_request_that_is_denied_as_a_whole_says_so_and_does_nothing(name: str, access: Access) -> None:
    """Every error code in the answer is the denial."""
    handler = HANDLERS[name]
    resource, code = _WHOLE[access.resource_type]
    denied = (access.operation, access.resource_type, resource)
    row = Row(name, handler.versions.stop - 1, (denied,), {})
    if name == "OffsetCommit":
        row = row._replace(version=9)
    async with running_node(authorizer=Deny(denied)) as node:
        before = node.broker.image
        codes = await call(node, row)
        assert set(codes.values()) == {code}
        assert code != CLUSTER or node.broker.image.configs == before.configs
        assert set(ITEMS) <= set(node.broker.image.topics) <= {*ITEMS, "__consumer_offsets"}


def test_every_operation_that_an_api_declares_has_a_row() -> None:
    """A new API cannot be forgotten."""
    covered = {(row.api, operation, kind) for row in ROWS for operation, kind, _ in row.denied}
    for handler in HANDLERS.values():
        assert bool(handler.accesses) is (handler.name not in ASKED_OF_NOTHING), handler.name
        for access in handler.accesses:
            in_transaction = access.resource_type is ResourceType.TRANSACTIONAL_ID or handler.name in TRANSACTIONS
            if access.per_item and not in_transaction and handler.name not in TOKENS:
                assert (handler.name, access.operation, access.resource_type) in covered, f"{handler.name}: {access}"


TOKENS: Final = {"CreateDelegationToken", "DescribeDelegationToken"}
"""`test_delegation_tokens` has these: they need a login."""
TRANSACTIONS: Final = {
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "WriteTxnMarkers",
    "TxnOffsetCommit",
    "DescribeTransactions",
}
"""`test_transactions` has these, and the transactional ids in other APIs: they need a transaction."""


@pytest.mark.parametrize("name", [name for name in HANDLERS if name not in ASKED_OF_NOTHING])
async def test_handler_checks_exactly_the_permissions_that_it_declares(name: str) -> None:
    """Other brokers then know it from the registration."""
    handler = HANDLERS[name]
    declared = {(access.operation, access.resource_type) for access in handler.accesses}
    version = {"OffsetCommit": 9, "OffsetFetch": 5}.get(name, handler.versions.stop - 1)
    change = {"DescribeTopicPartitions": put(cursor=None), "Produce": put(acks=-1)}.get(name, put())
    authorizer = Deny()
    async with running_node(authorizer=authorizer) as node:
        authorizer.asked.clear()
        await call(node, Row(name, version, (), {}, change))
    assert {(operation, kind) for operation, kind, _ in authorizer.asked} <= declared


async def test_denied_topic_is_refused_in_a_session_that_does_not_name_it() -> None:
    async with running_node(authorizer=Deny(topic(Op.READ))) as node:
        for name in ITEMS:
            await node.create(name)
        ids = {name: node.broker.image.topics[name].topic_id for name in ITEMS}
        request = filled(FetchRequest, 17, ids)
        request.forgotten_topics_data, request.session_epoch, request.max_bytes = [], 0, 100
        opened = await node.call(request, 17)
        assert [topic.partitions[0].error_code for topic in opened.responses] == [0, TOPIC]
        again = await node.call(FetchRequest(session_id=opened.session_id, session_epoch=1), 17)
        assert [topic.partitions[0].error_code for topic in again.responses] == [TOPIC]


async def test_pattern_of_a_member_matches_only_topics_that_it_may_describe() -> None:
    async with running_node(authorizer=Deny(topic(Op.DESCRIBE))) as node:
        for name in ITEMS:
            await node.create(name)
        await node.broker.topic_creation.ensure("__consumer_offsets")
        request = ConsumerGroupHeartbeatRequest(
            group_id=ONE_GROUP,
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=1_000,
            subscribed_topic_regex="open|shut",
            topic_partitions=[],
        )
        answer = await node.call(request, 1)
        assert answer.error_code == 0
        assert answer.assignment is not None
        assert [part.topic_id for part in answer.assignment.topic_partitions] == [
            node.broker.image.topics["open"].topic_id
        ]


async def test_cluster_operations_are_returned_only_with_describe_permission() -> None:
    """Nothing to the others."""
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    for authorizer, is_allowed in ((Deny(), True), (Deny(cluster(Op.DESCRIBE)), False)):
        async with running_node(authorizer=authorizer) as node:
            assert bool((await node.call(request, 1)).cluster_authorized_operations) is is_allowed
