"""Changes of a broker's key stores and trust stores (KIP-226), which the broker that they name checks itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from triokafka.broker_stub.config.security_names import is_dynamic_store
from triokafka.broker_stub.metadata.config_resources import AlterOperation
from triokafka.broker_stub.metadata.image import ResourceType
from triokafka.broker_stub.metadata.item_error import ItemError
from triokafka.broker_stub.request.context import RequestContext
from triokafka.errors import ConfigurationError, InvalidRequestError
from triokafka.protocol.api.incremental_alter_configs import AlterConfigsResource


def refused_stores(
    resources: Iterable[AlterConfigsResource], context: RequestContext
) -> Mapping[tuple[int, str], ItemError]:
    """Return the errors of the resources with stores that this broker could not use."""
    if context.is_on_controller or context.services.check_stores is None:
        return {}
    refused: dict[tuple[int, str], ItemError] = {}
    for resource in resources:
        key = resource.resource_type, resource.resource_name
        if key != (ResourceType.BROKER, str(context.node_id)):
            continue
        own = dict(context.metadata.image.broker_configs(context.node_id))
        changes = [change for change in resource.configs if is_dynamic_store(change.name)]
        for change in changes:
            if change.config_operation == AlterOperation.DELETE:
                own.pop(change.name, None)
            else:
                own[change.name] = change.value or ""
        if not changes:
            continue
        try:
            context.services.check_stores(
                context.services.configuration.broker_config_with(context.metadata.image, own)
            )
        except ConfigurationError as error:
            refused[key] = ItemError.of(
                InvalidRequestError(f"Validation of dynamic config update of TLS failed: {error}")
            )
    return refused
