"""AlterClientQuotas (API key 49): set and remove quotas of users, client ids and IP addresses.

Versions 0-1. v1: flexible.
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.alter_client_quotas import (
    AlterClientQuotasEntity,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResult,
)
from triokafka.security.acl import AclOperation


def _failed(
    request: AlterClientQuotasRequest, context: RequestContext, code: int, message: str
) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[
            AlterClientQuotasResult(
                error_code=code,
                error_message=message,
                entity=[
                    AlterClientQuotasEntity(entity_type=part.entity_type, entity_name=part.entity_name)
                    for part in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )


@handles(
    AlterClientQuotasRequest,
    versions=range(0, 2),
    accesses=[cluster(AclOperation.ALTER_CONFIGS)],
    on_error=_failed,
)
async def alter_client_quotas(request: AlterClientQuotasRequest, context: RequestContext) -> AlterClientQuotasResponse:
    """Forward the request to the controller. The response has one entry per entity of the request."""
    return await context.gateway_without_slot().send(request)
