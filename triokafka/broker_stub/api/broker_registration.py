"""BrokerRegistration (API key 62): a broker joins the cluster and gets its broker epoch (KIP-631).

Versions 0-4. v2: log directories (KIP-858). v3: the previous broker epoch (KIP-966).
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.gateway.lifecycle_messages import registration_of_request
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from triokafka.security.acl import AclOperation


@handles(BrokerRegistrationRequest, versions=range(0, 5), accesses=[cluster(AclOperation.CLUSTER_ACTION)])
async def broker_registration(
    request: BrokerRegistrationRequest, context: RequestContext
) -> BrokerRegistrationResponse:
    """Register the broker, fenced."""
    epoch = await context.gateway_without_slot().register_broker(registration_of_request(request))
    return BrokerRegistrationResponse(broker_epoch=epoch)
