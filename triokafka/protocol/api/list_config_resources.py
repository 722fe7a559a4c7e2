"""ListConfigResources (API key 74): the resources that have a configuration (KIP-714, KIP-1142).

Versions 0–1; flexible. v0: client metrics only. v1: any type.
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int8, Int16, String


class ListConfigResourcesRequest(Request["ListConfigResourcesResponse"], api_key=74, versions="0-1", flexible="0+"):
    """Ask for resources that have a configuration."""

    resource_types: list[int] = field(Array(Int8), versions="1+", doc="The types to list; empty for all.")


class ConfigResource(Struct):
    """A resource that has a configuration."""

    resource_name: str = field(String, doc="The resource's name.")
    resource_type: int = field(
        Int8,
        versions="1+",
        ignorable=True,
        default=16,
        doc="Its type: 2 topic, 4 broker, 8 a broker's loggers, 16 client metrics, 32 group.",
    )


class ListConfigResourcesResponse(Response, api_key=74, versions="0-1", flexible="0+"):
    """The resources."""

    throttle_time_ms: int = fields.throttle_time_ms()
    error_code: int = field(
        Int16,
        doc="The error code; 0 means success.",
        errors=(
            "UnsupportedVersionError",
            "ClusterAuthorizationFailedError",
        ),
    )
    config_resources: list[ConfigResource] = field(Array(ConfigResource), doc="The resources.")
