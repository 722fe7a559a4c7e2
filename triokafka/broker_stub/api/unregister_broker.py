"""UnregisterBroker (API key 64): remove the registration of a retired broker. A live broker registers again.

Version 0.
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from triokafka.security.acl import AclOperation


@handles(UnregisterBrokerRequest, versions=range(0, 1), accesses=[cluster(AclOperation.ALTER)])
async def unregister_broker(request: UnregisterBrokerRequest, context: RequestContext) -> UnregisterBrokerResponse:
    """Forward the request to the controller."""
    return await context.gateway_without_slot().send(request)
