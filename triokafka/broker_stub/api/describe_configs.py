"""DescribeConfigs (API key 32): configuration of topics and brokers, with where each value comes from.

Versions 1-4. v1: sources and synonyms. v3: types and documentation. v4: flexible.
"""

from __future__ import annotations

from triokafka.broker_stub.api.config_access import config_accesses, denied_resources
from triokafka.broker_stub.authorizer import Operation
from triokafka.broker_stub.handlers import RequestContext, handles
from triokafka.protocol.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)


def _failed(
    request: DescribeConfigsRequest, context: RequestContext, code: int, message: str
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


@handles(
    DescribeConfigsRequest,
    versions=range(1, 5),
    accesses=config_accesses(Operation.DESCRIBE_CONFIGS),
    on_error=_failed,
)
async def describe_configs(request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    """Answer from the image, without waiting."""
    denied = denied_resources(request.resources, Operation.DESCRIBE_CONFIGS, context)
    return context.broker.controller.describe_configs(request, denied=denied, by=context.broker.configuration)
