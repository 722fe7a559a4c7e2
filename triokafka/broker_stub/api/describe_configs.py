"""DescribeConfigs (API key 32): configuration of topics and brokers, with where each value comes from.

Versions 1-4. v1: sources and synonyms. v3: types and documentation. v4: flexible.
"""

from __future__ import annotations

from typing import Final

from triokafka.broker_stub.api.config_access import config_accesses, denied_resources
from triokafka.broker_stub.authorizer import Operation
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.broker_stub.work_budget import WorkBudget
from triokafka.protocol.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

_WORK: Final = 2  # a resource has dozens of keys


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
    """Answer from the image; others have their turn in between, since tools ask for all topics at once."""
    broker = context.broker
    denied = denied_resources(request.resources, Operation.DESCRIBE_CONFIGS, context)
    response = DescribeConfigsResponse()
    budget = WorkBudget()
    for result in broker.controller.describe_configs(request, denied=denied, by=broker.configuration):
        response.results.append(result)
        context.items += len(result.configs)
        await budget.spend(_WORK)
    return response
