"""ControllerRegistration (API key 70): a controller registers its listeners and features (KIP-919).

Version 0.
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.gateway.lifecycle_messages import controller_registration_of_request
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from triokafka.security.acl import AclOperation


@handles(ControllerRegistrationRequest, versions=range(0, 1), accesses=[cluster(AclOperation.CLUSTER_ACTION)])
async def controller_registration(
    request: ControllerRegistrationRequest, context: RequestContext
) -> ControllerRegistrationResponse:
    """Register the controller."""
    await context.gateway_without_slot().register_controller(controller_registration_of_request(request))
    return ControllerRegistrationResponse()
