"""Changes of a broker's key stores and trust stores (KIP-226), which the broker that they name checks itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from triokafka.broker_stub.config.security_names import is_dynamic_store
from triokafka.broker_stub.metadata.item_error import ItemError
from triokafka.broker_stub.request.context import RequestContext
from triokafka.errors import ConfigurationError, InvalidRequestError
from triokafka.protocol.configuration import ConfigOperation, ConfigResourceType

if TYPE_CHECKING:
    from triokafka.protocol.api.alter_configs import AlterConfigsResource as WholeResource
    from triokafka.protocol.api.incremental_alter_configs import AlterConfigsResource


def refused_stores(
    resources: Iterable[AlterConfigsResource], context: RequestContext
) -> Mapping[tuple[int, str], ItemError]:
    """Return the errors of the resources with stores that this broker could not use."""
    refused: dict[tuple[int, str], ItemError] = {}
    for resource in resources:
        changes = [change for change in resource.configs if is_dynamic_store(change.name)]
        if changes and _is_this_broker(resource, context):
            own = dict(context.metadata.image.broker_configs(context.node_id))
            for change in changes:
                if change.config_operation == ConfigOperation.DELETE:
                    own.pop(change.name, None)
                else:
                    own[change.name] = change.value or ""
            refused |= _check(resource, own, context)
    return refused


def refused_whole_stores(
    resources: Iterable[WholeResource], context: RequestContext
) -> Mapping[tuple[int, str], ItemError]:
    """Return the same for requests that replace the whole configuration of a broker."""
    refused: dict[tuple[int, str], ItemError] = {}
    for resource in resources:
        own = {config.name: config.value or "" for config in resource.configs}
        if any(map(is_dynamic_store, own)) and _is_this_broker(resource, context):
            refused |= _check(resource, own, context)
    return refused


def _is_this_broker(resource: AlterConfigsResource | WholeResource, context: RequestContext) -> bool:
    return (resource.resource_type, resource.resource_name) == (ConfigResourceType.BROKER, str(context.node_id))


def _check(
    resource: AlterConfigsResource | WholeResource, own: Mapping[str, str], context: RequestContext
) -> dict[tuple[int, str], ItemError]:
    if context.is_on_controller or context.broker.check_stores is None:
        return {}
    try:
        context.broker.check_stores(context.services.configuration.broker_config_with(context.metadata.image, own))
    except ConfigurationError as error:
        refusal = InvalidRequestError(f"Validation of dynamic config update of TLS failed: {error}")
        return {(resource.resource_type, resource.resource_name): ItemError.of(refusal)}
    return {}
