"""ListConfigResources (API key 74): list the resources that have a configuration (KIP-714, KIP-1142).

Versions 0-1. v0: client metrics only. v1: any type.
"""

from __future__ import annotations

from typing import Final

from triokafka import errors
from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.metadata import MetadataImage
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from triokafka.protocol.configuration import ConfigResourceType
from triokafka.security.acl import AclOperation

_TYPES: Final = tuple(ConfigResourceType)


@handles(ListConfigResourcesRequest, versions=range(0, 2), accesses=[cluster(AclOperation.DESCRIBE_CONFIGS)])
async def list_config_resources(
    request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    """List the resources in the metadata image."""
    types = request.resource_types or _TYPES
    if context.version == 0:
        types = (ConfigResourceType.CLIENT_METRICS,)
    unknown = [kind for kind in types if kind not in _TYPES]
    if unknown:
        raise errors.UnsupportedVersionError(f"resource types {unknown} are not known")
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in dict.fromkeys(types)
            for name in _names(kind, context.metadata.image)
        ]
    )


def _names(kind: int, image: MetadataImage) -> list[str]:
    match kind:
        case ConfigResourceType.TOPIC:
            return sorted(image.topics)
        case ConfigResourceType.BROKER | ConfigResourceType.BROKER_LOGGER:
            return [str(broker_id) for broker_id in sorted(image.brokers)]
        case _:
            return sorted(name for resource_type, name in image.configs if resource_type == kind)
