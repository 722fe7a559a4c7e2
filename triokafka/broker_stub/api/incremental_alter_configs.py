"""IncrementalAlterConfigs (API key 44): sets, deletes, appends to and subtracts from single configuration keys.

Versions 0-1. v1: flexible.
"""

from __future__ import annotations

from triokafka.broker_stub.api.config_access import config_accesses, denied_resources
from triokafka.broker_stub.authorizer import Operation
from triokafka.broker_stub.handlers import RequestContext, handles
from triokafka.protocol.api.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


def _failed(
    request: IncrementalAlterConfigsRequest, context: RequestContext, code: int, message: str
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


@handles(
    IncrementalAlterConfigsRequest,
    versions=range(0, 2),
    accesses=config_accesses(Operation.ALTER_CONFIGS),
    on_error=_failed,
)
async def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Hand the request to the controller; as many answers as resources."""
    denied = denied_resources(request.resources, Operation.ALTER_CONFIGS, context)
    return await context.broker.controller.incremental_alter_configs(request, denied=denied)
