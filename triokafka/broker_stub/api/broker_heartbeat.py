"""BrokerHeartbeat (API key 63): a broker renews its session, and asks to be fenced, unfenced or shut down (KIP-631).

Versions 0-2. v1: offline log directories (KIP-858). v2: cordoned log directories (KIP-1066).
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.gateway.lifecycle_messages import heartbeat_of_request
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from triokafka.security.acl import AclOperation


@handles(BrokerHeartbeatRequest, versions=range(0, 3), accesses=[cluster(AclOperation.CLUSTER_ACTION)])
async def broker_heartbeat(request: BrokerHeartbeatRequest, context: RequestContext) -> BrokerHeartbeatResponse:
    """Pass the heartbeat to the controller."""
    reply = await context.gateway_without_slot().broker_heartbeat(heartbeat_of_request(request))
    return BrokerHeartbeatResponse(
        is_caught_up=reply.is_caught_up, is_fenced=reply.is_fenced, should_shut_down=reply.should_shut_down
    )
