"""CreateTopics (API key 19): create topics with their partitions and configuration.

Versions 2-7. v4: -1 selects the broker's default number of partitions or replication factor (KIP-464). v5: flexible,
the response contains the configuration (KIP-525). v6: THROTTLING_QUOTA_EXCEEDED (KIP-599). v7: the response contains
the topic id.
"""

from __future__ import annotations

from typing import Final

from triokafka import errors
from triokafka.broker_stub.authorizer import of_topics, or_cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from triokafka.security.acl import AclOperation, ResourceType

_STRICT_SINCE: Final = 6


def _names(request: CreateTopicsRequest) -> list[str]:
    return [topic.name for topic in request.topics]


def _refusal(topic: CreatableTopic, code: int, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=topic.name, error_code=code, error_message=message, configs=[])


def _failed(request: CreateTopicsRequest, context: RequestContext, code: int, message: str) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[_refusal(topic, code, message) for topic in request.topics])


@handles(
    CreateTopicsRequest,
    versions=range(2, 8),
    accesses=[
        or_cluster(AclOperation.CREATE),
        of_topics(AclOperation.CREATE),
        of_topics(AclOperation.DESCRIBE_CONFIGS),
    ],
    on_error=_failed,
)
async def create_topics(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    """Forward the topics that the client may create to the controller. Results are in the order of the request."""
    refused: set[str] = set()
    if context.denied_for_cluster(AclOperation.CREATE, audit=False):
        refused = {name for name in _names(request) if context.denied(AclOperation.CREATE, ResourceType.TOPIC, name)}
    hidden = {
        name
        for name in _names(request)
        if context.denied(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name, audit=False)
    }
    allowed = CreateTopicsRequest(
        topics=[topic for topic in request.topics if topic.name not in refused],
        timeout_ms=request.timeout_ms,
        validate_only=request.validate_only,
    )
    response = await context.gateway_without_slot().create_topics(
        allowed,
        hidden_configs=frozenset(hidden),
        charge=context.charge_mutations(strict=context.version >= _STRICT_SINCE),
    )
    if not request.validate_only and not context.is_on_controller:
        for topic in response.topics:
            _report_offline(topic, context)
    results = iter(response.topics)
    code = errors.TopicAuthorizationFailedError.code
    response.topics = [
        _refusal(topic, code, "Authorization failed.") if topic.name in refused else next(results)
        for topic in request.topics
    ]
    return response


def _report_offline(topic: CreatableTopicResult, context: RequestContext) -> None:
    """Turn a success into KAFKA_STORAGE_ERROR when this broker could not create the logs of new partitions.

    The topic exists nevertheless, and its partitions come online once their logs can be created. In Kafka, CreateTopics
    returns NONE and the first Produce fails.
    """
    image = context.metadata.image.topics.get(topic.name)
    if topic.error_code or image is None:
        return
    reasons = []
    for number in image.partitions:
        try:
            context.replicas.check_online((topic.name, number))
        except errors.KafkaStorageError as error:
            reasons.append(str(error))
    if reasons:
        topic.error_code = errors.KafkaStorageError.code
        topic.error_message = (
            f"Topic {topic.name} was created, but {len(reasons)} of its {len(image.partitions)} partitions are offline "
            f"until their logs can be created: {reasons[0]}"
        )
