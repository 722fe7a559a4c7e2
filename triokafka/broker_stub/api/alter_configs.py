"""AlterConfigs (API key 33): replace the whole configuration of topics and brokers.

Versions 0-2. v1: the broker responds before it throttles. v2: flexible. Deprecated: clients should use
IncrementalAlterConfigs (44).
"""

from __future__ import annotations

from triokafka.broker_stub.api.config_resources import config_accesses, failed_resources, refused_resources
from triokafka.broker_stub.api.key_store_changes import refused_whole_stores
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from triokafka.security.acl import AclOperation


def _failed(request: AlterConfigsRequest, context: RequestContext, code: int, message: str) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=failed_resources(AlterConfigsResourceResponse, request.resources, code, message)
    )


@handles(
    AlterConfigsRequest,
    versions=range(0, 3),
    accesses=config_accesses(AclOperation.ALTER_CONFIGS),
    on_error=_failed,
)
async def alter_configs(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    """Forward the request to the controller. The response has one result per resource of the request."""
    denied = refused_resources(request.resources, AclOperation.ALTER_CONFIGS, context)
    denied = {**refused_whole_stores(request.resources, context), **denied}
    return await context.gateway_without_slot().alter_configs(request, denied=denied)
