"""ConsumerGroupHeartbeat (API key 68): membership and assignment in the consumer protocol (KIP-848).

Versions 0-1, all flexible. v1: the consumer generates its member id (KIP-1082); subscription by regular expression.
"""

from __future__ import annotations

from triokafka.broker_stub.api.group_version import require_group_version
from triokafka.broker_stub.authorizer import Access, of_group
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from triokafka.security.acl import AclOperation, ResourceType


@handles(
    ConsumerGroupHeartbeatRequest,
    versions=range(0, 2),
    accesses=[
        of_group(AclOperation.READ),
        Access(
            AclOperation.DESCRIBE,
            ResourceType.TOPIC,
            lambda request: request.subscribed_topic_names or [],
            per_item=False,
        ),
    ],
    waits=True,
)
async def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse:
    """Let the member join, stay or leave, and return its assignment when the assignment has changed.

    A regular expression matches only topics that the member may describe.
    """
    require_group_version(context)
    return await context.groups.membership.consumer_group_heartbeat(
        request,
        version=context.version,
        client_id=context.client_id,
        client_host=context.client_host,
        may_describe=lambda name: not context.denied(AclOperation.DESCRIBE, ResourceType.TOPIC, name),
    )
