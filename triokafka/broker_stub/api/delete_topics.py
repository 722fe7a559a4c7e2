"""DeleteTopics (API key 20): delete topics with their records.

Versions 1-6. v3: TOPIC_DELETION_DISABLED when ``delete.topic.enable`` is false. v4: flexible. v5: error messages and
THROTTLING_QUOTA_EXCEEDED (KIP-599). v6: topics by name or id (KIP-516).
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from triokafka import errors
from triokafka.broker_stub.authorizer import Access, or_cluster
from triokafka.broker_stub.metadata import MetadataImage
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.broker_stub.work_budget import in_portions
from triokafka.protocol.api.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from triokafka.security.acl import AclOperation, ResourceType

_STRICT_SINCE: Final = 5
_BY_ID_SINCE: Final = 6
_NO_ID: Final = UUID(int=0)


def _asked(request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    return [*(DeleteTopicState(name=name) for name in request.topic_names), *request.topics]


def _names(request: DeleteTopicsRequest) -> list[str]:
    return [topic.name for topic in _asked(request) if topic.name is not None]


def _failed(request: DeleteTopicsRequest, context: RequestContext, code: int, message: str) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=message)
            for topic in _asked(request)
        ]
    )


@handles(
    DeleteTopicsRequest,
    versions=range(1, 7),
    accesses=[
        or_cluster(AclOperation.DELETE),
        Access(AclOperation.DELETE, ResourceType.TOPIC, _names),
        Access(AclOperation.DESCRIBE, ResourceType.TOPIC, _names),
    ],
    on_error=_failed,
)
async def delete_topics(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    """Forward the topics that the client may delete to the controller. Results are in the order of the request."""
    asked = _asked(request)
    refused = [_denied(topic, context.metadata.image, context) async for topic in in_portions(asked)]
    topics = [topic for topic, refusal in zip(asked, refused, strict=True) if refusal is None]
    # The controller gets the request in the client's version, which has one of the two lists.
    if context.version >= _BY_ID_SINCE:
        allowed = DeleteTopicsRequest(topics=topics, timeout_ms=request.timeout_ms)
    else:
        names = [topic.name for topic in topics if topic.name is not None]
        allowed = DeleteTopicsRequest(topic_names=names, timeout_ms=request.timeout_ms)
    response = await context.gateway_without_slot().delete_topics(
        allowed, version=context.version, charge=context.charge_mutations(strict=context.version >= _STRICT_SINCE)
    )
    results = iter(response.responses)
    response.responses = [refusal if refusal is not None else next(results) for refusal in refused]
    return response


def _denied(topic: DeleteTopicState, image: MetadataImage, context: RequestContext) -> DeletableTopicResult | None:
    """Return the error for a topic that the client may not delete, or None: then the controller gets it.

    The error does not reveal whether the topic exists to a client that may not describe it. The controller does not
    get a topic that is unknown here either, unless the client may delete it: it may have been created since.
    """
    name = topic.name
    if name is None and topic.topic_id == _NO_ID:
        return None  # the controller refuses it
    if not context.denied_for_cluster(AclOperation.DELETE, audit=False):
        return None
    if name is None:
        found = image.topics_by_id.get(topic.topic_id)
        if found is None:
            return _unknown(topic, errors.UnknownTopicIdError, "This server does not host this topic ID.")
        name = found.name
    denied = context.denied(AclOperation.DELETE, ResourceType.TOPIC, name)
    visible = not context.denied(AclOperation.DESCRIBE, ResourceType.TOPIC, name, audit=False)
    if not denied and (visible or topic.name is None):
        return None
    if visible and name not in image.topics:
        if topic.topic_id != _NO_ID:
            return None  # the controller refuses a name together with an id
        return _unknown(topic, errors.UnknownTopicOrPartitionError, "This server does not host this topic-partition.")
    return DeletableTopicResult(
        name=name if visible or topic.name is not None else None,
        topic_id=topic.topic_id,
        error_code=errors.TopicAuthorizationFailedError.code,
        error_message="Authorization failed.",
    )


def _unknown(topic: DeleteTopicState, error: type[errors.BrokerResponseError], message: str) -> DeletableTopicResult:
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=error.code, error_message=message)
