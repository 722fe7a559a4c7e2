"""Which topics of a DeleteTopics request reach the controller, whose metadata may be newer than those of the broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from triokafka import errors
from triokafka.broker_stub.api.delete_topics import delete_topics
from triokafka.broker_stub.metadata.image import EMPTY_IMAGE
from triokafka.broker_stub.request.context import RequestContext
from triokafka.protocol.api.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from triokafka.security.acl import AclOperation

NEW = UUID(int=7)
OPERATIONS = (AclOperation.DELETE, AclOperation.DESCRIBE)


class Controller:
    """Knows every topic, and deletes what it gets."""

    def __init__(self) -> None:
        self.deleted: list[str | UUID | None] = []

    async def delete_topics(self, request: DeleteTopicsRequest, **_: Any) -> DeleteTopicsResponse:
        self.deleted += [topic.name or topic.topic_id for topic in request.topics]
        return DeleteTopicsResponse(
            responses=[DeletableTopicResult(name=one.name, topic_id=one.topic_id) for one in request.topics]
        )


async def delete(*allowed: AclOperation, everywhere: bool = False) -> tuple[list[str | UUID | None], list[int]]:
    """Delete topics that this broker does not know yet, by name and by id; return what the controller got, and the
    codes.
    """
    controller = Controller()
    context = SimpleNamespace(
        version=6,
        metadata=SimpleNamespace(image=EMPTY_IMAGE),
        denied=lambda operation, kind, name, audit=True: operation not in allowed,
        denied_for_cluster=lambda operation, audit=True: not everywhere,
        charge_mutations=lambda strict: None,
        gateway_without_slot=lambda: controller,
    )
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="new"), DeleteTopicState(topic_id=NEW)])
    response = await delete_topics(request, cast(RequestContext, context))
    return controller.deleted, [one.error_code for one in response.responses]


@pytest.mark.parametrize(
    ("allowed", "by_name"),
    [
        ((), errors.TopicAuthorizationFailedError),
        ((AclOperation.DESCRIBE,), errors.UnknownTopicOrPartitionError),
        ((AclOperation.DELETE,), errors.TopicAuthorizationFailedError),  # an ACL denies DESCRIBE
    ],
)
async def test_topic_that_was_just_created_is_not_deleted_without_permission(
    allowed: tuple[AclOperation, ...], by_name: type[errors.BrokerResponseError]
) -> None:
    assert await delete(*allowed) == ([], [by_name.code, errors.UnknownTopicIdError.code])


async def test_topic_that_is_unknown_here_goes_to_the_controller_with_permission() -> None:
    assert await delete(*OPERATIONS) == (["new"], [0, errors.UnknownTopicIdError.code])
    assert await delete(everywhere=True) == (["new", NEW], [0, 0])
