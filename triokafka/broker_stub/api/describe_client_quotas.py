"""DescribeClientQuotas (API key 48): which quotas are set.

Versions 0-1. v1: flexible.
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import Operation, cluster
from triokafka.broker_stub.controller.client_quotas import describe_client_quotas as describe
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse


def _failed(
    request: DescribeClientQuotasRequest, context: RequestContext, code: int, message: str
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)


@handles(
    DescribeClientQuotasRequest,
    versions=range(0, 2),
    accesses=[cluster(Operation.DESCRIBE_CONFIGS)],
    on_error=_failed,
)
async def describe_client_quotas(
    request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    """Answer from the image, without waiting."""
    return describe(context.metadata.image, request)
