"""CreatePartitions (API key 37): add partitions to topics.

Versions 0-3. v1: the broker responds before it throttles. v2: flexible. v3: THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

from typing import Final

from triokafka import errors
from triokafka.broker_stub.authorizer import of_topics
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from triokafka.security.acl import AclOperation, ResourceType

_STRICT_SINCE: Final = 3


def _names(request: CreatePartitionsRequest) -> list[str]:
    return [topic.name for topic in request.topics]


def _refusal(topic: CreatePartitionsTopic, code: int, message: str) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)


def _failed(
    request: CreatePartitionsRequest, context: RequestContext, code: int, message: str
) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(results=[_refusal(topic, code, message) for topic in request.topics])


@handles(CreatePartitionsRequest, versions=range(0, 4), accesses=[of_topics(AclOperation.ALTER)], on_error=_failed)
async def create_partitions(request: CreatePartitionsRequest, context: RequestContext) -> CreatePartitionsResponse:
    """Forward the topics that the client may alter to the controller. Results are in the order of the request."""
    refused = {name for name in _names(request) if context.denied(AclOperation.ALTER, ResourceType.TOPIC, name)}
    allowed = CreatePartitionsRequest(
        topics=[topic for topic in request.topics if topic.name not in refused],
        timeout_ms=request.timeout_ms,
        validate_only=request.validate_only,
    )
    charge = context.charge_mutations(strict=context.version >= _STRICT_SINCE)
    response = await context.gateway_without_slot().create_partitions(allowed, charge=charge)
    results = iter(response.results)
    code = errors.TopicAuthorizationFailedError.code
    response.results = [
        _refusal(topic, code, "Authorization failed.") if topic.name in refused else next(results)
        for topic in request.topics
    ]
    return response
