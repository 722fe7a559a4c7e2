"""Metadata (API key 3): brokers, and topics with their partitions and leaders.

Versions 0-13. v1: racks, controller, internal flag; an empty list of topics means none, null means all. v2: cluster id.
v3: throttle time. v4: the client allows or forbids topic creation. v5: offline replicas. v7: leader epochs.
v8: authorized operations. v9: flexible. v10: topic ids. v11: no cluster operations. v12: requests by topic id.
v13: top-level error code.

For an unknown topic that it may create, the broker creates the topic and returns UNKNOWN_TOPIC_OR_PARTITION; the client
repeats the request and finds the topic. Kafka does the same, since it responds before its controller has created the
topic. Only this broker's log has the reason why the creation of a topic failed. Before version 5 the error of a topic
that exists now is LEADER_NOT_AVAILABLE, as of Kafka with ZooKeeper: librdkafka before 1.6 fails records of unknown
topics at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final
from uuid import UUID

from triokafka import errors
from triokafka.broker_stub.api.brokers import controller_id, endpoint_of
from triokafka.broker_stub.authorizer import Access, or_cluster
from triokafka.broker_stub.metadata.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.broker_stub.work_budget import WorkBudget, in_portions
from triokafka.protocol.api.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from triokafka.security.acl import AclOperation, ResourceType
from triokafka.topic_names import is_internal

_NO_ID = UUID(int=0)

_ORDER = {
    errors.UnknownTopicIdError.code: 0,
    0: 1,
    errors.InvalidTopicError.code: 2,
    errors.UnknownTopicOrPartitionError.code: 3,
}
_LAST = 4
"""Sort key of topics without and with errors, in Kafka's order. Topics of equal rank keep the order of the request."""


_UNKNOWN_SINCE: Final = 5
"""First version in which a topic that this request has created is called unknown."""


def _asked(request: MetadataRequest) -> Iterable[str]:
    # The Java client sends an empty name beside a topic id.
    return [topic.name for topic in request.topics or () if topic.name is not None and topic.topic_id == _NO_ID]


def _failed(request: MetadataRequest, context: RequestContext, code: int, message: str) -> MetadataResponse | None:
    if context.version >= 13:
        return MetadataResponse(error_code=code)
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.topics or ()
        ]
    )


@handles(
    MetadataRequest,
    versions=range(0, 14),
    accesses=[
        Access(AclOperation.DESCRIBE, ResourceType.TOPIC, _asked),
        or_cluster(AclOperation.CREATE),
        Access(AclOperation.CREATE, ResourceType.TOPIC, _asked),
        or_cluster(AclOperation.DESCRIBE),  # needed for the cluster's authorized operations
    ],
    on_error=_failed,
)
async def metadata(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """Read the metadata image, and create unknown topics where the client and the configuration allow it."""
    every_topic = request.topics is None or (context.version == 0 and not request.topics)
    topics: list[MetadataResponseTopic] = []
    budget = WorkBudget()
    if every_topic:
        image = context.metadata.image
        for name in sorted(image.topics):
            if not context.denied(AclOperation.DESCRIBE, ResourceType.TOPIC, name, audit=False):
                topics.append(_topic(image.topics[name], image, request, context))
                await budget.spend(_size(topics[-1], context))
    else:
        image = context.metadata.image  # before the creation, so that the response calls new topics unknown
        refusals = await _create_missing(request, image, context)
        # Describe a repeated topic once, so that a request cannot inflate the response beyond the cluster's size.
        asked = dict.fromkeys((topic.name, topic.topic_id) for topic in request.topics or ())
        for topic in asked:
            topics.append(_one(*topic, refusals, image, request, context))
            await budget.spend(_size(topics[-1], context))
        topics.sort(key=_rank)
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.broker_id, host=host, port=port, rack=node.rack)
            for node in sorted(image.brokers.values(), key=lambda node: node.broker_id)
            if not node.fenced
            for host, port in endpoint_of(node, context.listener)
        ],
        cluster_id=context.services.cluster_id(),
        controller_id=controller_id(image, context.node_id),
        topics=topics,
    )
    if 8 <= context.version <= 10 and request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = context.cluster_operations()
    return response


def _size(topic: MetadataResponseTopic, context: RequestContext) -> int:
    size = 1 + len(topic.partitions)
    context.items += size
    return size


def _rank(topic: MetadataResponseTopic) -> int:
    return _ORDER.get(topic.error_code, _LAST)


async def _create_missing(request: MetadataRequest, image: MetadataImage, context: RequestContext) -> dict[str, int]:
    """Create missing topics, and return error codes by name: of topics that this client may not create, and before
    version 5 of those that exist now.

    With ``auto.create.topics.enable=false`` the result is empty, and the client needs no permission to create topics.
    The first FindCoordinator request creates internal topics.
    """
    creation = context.topic_creation
    if not request.allow_auto_topic_creation or not creation.is_enabled:
        return {}
    missing = [
        name
        async for name in in_portions(_asked(request))
        if name not in image.topics and not context.denied(AclOperation.DESCRIBE, ResourceType.TOPIC, name, audit=False)
    ]
    if not missing:
        return {}
    refusals = {name: errors.TopicAuthorizationFailedError.code for name in missing if _may_not_create(name, context)}
    context.yield_slot()  # while it waits for the controller
    existing = await creation.create_missing(
        [name for name in missing if name not in refusals], charge=context.charge_mutations(strict=False)
    )
    if context.version < _UNKNOWN_SINCE:
        refusals |= dict.fromkeys(existing, errors.LeaderNotAvailableError.code)
    return refusals


def _may_not_create(name: str, context: RequestContext) -> bool:
    return context.denied_for_cluster(AclOperation.CREATE, audit=False) and context.denied(
        AclOperation.CREATE, ResourceType.TOPIC, name
    )


def _one(
    name: str | None,
    topic_id: UUID,
    refusals: Mapping[str, int],
    image: MetadataImage,
    request: MetadataRequest,
    context: RequestContext,
) -> MetadataResponseTopic:
    if name is None or topic_id != _NO_ID:
        if context.version < 12 or topic_id == _NO_ID:
            return MetadataResponseTopic(
                error_code=errors.InvalidRequestError.code, name="" if context.version < 12 else None, topic_id=topic_id
            )
        by_id = image.topics_by_id.get(topic_id)
        if by_id is None:
            return MetadataResponseTopic(error_code=errors.UnknownTopicIdError.code, name=None, topic_id=topic_id)
        if context.denied(AclOperation.DESCRIBE, ResourceType.TOPIC, by_id.name):
            # The response must not reveal the topic's name to this client.
            return MetadataResponseTopic(
                error_code=errors.TopicAuthorizationFailedError.code, name=None, topic_id=topic_id
            )
        return _topic(by_id, image, request, context)
    if context.denied(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
        return MetadataResponseTopic(error_code=errors.TopicAuthorizationFailedError.code, name=name)
    topic = image.topics.get(name)
    if topic is not None:
        return _topic(topic, image, request, context)
    unknown = MetadataResponseTopic(name=name, is_internal=is_internal(name))
    if refusals.get(name) == errors.TopicAuthorizationFailedError.code:
        unknown.error_code = errors.TopicAuthorizationFailedError.code
        return unknown
    unknown.error_code = (
        refusals.get(name) or context.topic_creation.name_error(name) or errors.UnknownTopicOrPartitionError.code
    )
    _add_operations(unknown, name, request, context)
    return unknown


def _topic(
    topic: TopicImage, image: MetadataImage, request: MetadataRequest, context: RequestContext
) -> MetadataResponseTopic:
    response = MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=[_partition(topic.name, state, image, context) for _, state in sorted(topic.partitions.items())],
    )
    _add_operations(response, topic.name, request, context)
    return response


def _add_operations(topic: MetadataResponseTopic, name: str, request: MetadataRequest, context: RequestContext) -> None:
    if context.version >= 8 and request.include_topic_authorized_operations:
        topic.topic_authorized_operations = context.allowed_operations(ResourceType.TOPIC, name)


def _partition(
    topic: str, state: PartitionImage, image: MetadataImage, context: RequestContext
) -> MetadataResponsePartition:
    offline = offline_replicas(topic, state, image, context)
    leader = available_leader(state, image, offline)
    return MetadataResponsePartition(
        error_code=0 if leader != NO_LEADER else errors.LeaderNotAvailableError.code,
        partition_index=state.partition,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=offline,
    )


def available_leader(state: PartitionImage, image: MetadataImage, offline: Collection[int]) -> int:
    """Return the leader's id, or -1 as in Kafka if the leader is not registered or its replica is offline."""
    return state.leader if state.leader in image.brokers and state.leader not in offline else NO_LEADER


def offline_replicas(topic: str, state: PartitionImage, image: MetadataImage, context: RequestContext) -> list[int]:
    """Return the replicas whose broker is unregistered or fenced, and this broker's replica if its disk has failed."""
    offline = [replica for replica in state.replicas if (node := image.brokers.get(replica)) is None or node.fenced]
    if context.replicas.is_offline((topic, state.partition)) and context.node_id not in offline:
        offline.append(context.node_id)
    return offline
