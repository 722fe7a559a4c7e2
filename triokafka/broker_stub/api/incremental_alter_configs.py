"""IncrementalAlterConfigs (API key 44): set, delete, append to and subtract from single configuration keys (KIP-339).

Versions 0-1. v1: flexible. Log levels (``BROKER_LOGGER``) apply to this process and are lost at a restart (KIP-412).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from triokafka import errors
from triokafka.broker_stub import loggers
from triokafka.broker_stub.api.config_resources import config_accesses, failed_resources, refused_resources
from triokafka.broker_stub.api.key_store_changes import refused_stores
from triokafka.broker_stub.metadata.config_resource_checks import check_broker_name, check_repeats
from triokafka.broker_stub.metadata.item_error import NO_ERROR, ItemError
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.broker_stub.work_budget import WorkBudget
from triokafka.protocol.api.alter_configs import AlterConfigsResourceResponse
from triokafka.protocol.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from triokafka.protocol.configuration import ConfigOperation, ConfigResourceType
from triokafka.security.acl import AclOperation


def _failed(
    request: IncrementalAlterConfigsRequest, context: RequestContext, code: int, message: str
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=failed_resources(AlterConfigsResourceResponse, request.resources, code, message)
    )


@handles(
    IncrementalAlterConfigsRequest,
    versions=range(0, 2),
    accesses=config_accesses(AclOperation.ALTER_CONFIGS),
    on_error=_failed,
)
async def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Set log levels in this process and forward the rest to the controller. Results keep the order of the request."""
    denied = refused_resources(request.resources, AclOperation.ALTER_CONFIGS, context)
    denied = {**refused_stores(request.resources, context), **denied}
    if not any(map(_is_logger, request.resources)):
        return await context.gateway_without_slot().incremental_alter_configs(request, denied=denied)
    rest = IncrementalAlterConfigsRequest(
        resources=[resource for resource in request.resources if not _is_logger(resource)],
        validate_only=request.validate_only,
    )
    response = await context.gateway_without_slot().incremental_alter_configs(rest, denied=denied)
    others, budget = iter(response.responses), WorkBudget()
    times = Counter(resource.resource_name for resource in request.resources if _is_logger(resource))
    response.responses = []
    for resource in request.resources:
        if _is_logger(resource):
            response.responses.append(
                _alter_loggers(resource, times[resource.resource_name], request.validate_only, denied, context)
            )
            await budget.spend()
        else:
            response.responses.append(next(others))
    return response


def _is_logger(resource: AlterConfigsResource) -> bool:
    return resource.resource_type == ConfigResourceType.BROKER_LOGGER


def _alter_loggers(
    resource: AlterConfigsResource,
    times: int,
    validate_only: bool,
    denied: Mapping[tuple[int, str], ItemError],
    context: RequestContext,
) -> AlterConfigsResourceResponse:
    """Apply all changes of log levels, or none of them (KIP-412)."""
    failure = denied.get((resource.resource_type, resource.resource_name), NO_ERROR)
    try:
        if not failure:
            check_repeats(times, [change.name for change in resource.configs])
            check_broker_name(resource.resource_name, context.node_id)
            changes = [(change.name, _level(change)) for change in resource.configs]
            for name, level in changes:
                loggers.check(name, level)
            for name, level in () if validate_only else changes:
                loggers.set_level(name, level)
    except errors.BrokerResponseError as error:
        failure = ItemError.of(error)
    return AlterConfigsResourceResponse(
        error_code=failure.code,
        error_message=failure.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _level(change: AlterableConfig) -> str | None:
    match change.config_operation:
        case ConfigOperation.SET:
            return change.value or ""
        case ConfigOperation.DELETE:
            return None
        case other:
            operation = ConfigOperation(other).name if other in set(ConfigOperation) else f"Unknown {other}"
            raise errors.InvalidRequestError(f"{operation} operation is not allowed for the BROKER_LOGGER resource")
