"""IncrementalAlterConfigs (API key 44): change single configuration entries of resources (KIP-339).

Versions 0–1; flexible from 1.
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.api.alter_configs import AlterConfigsResourceResponse
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Int8, String


class AlterableConfig(Struct):
    """A change of one entry."""

    name: str = field(String, doc="The entry's name.")
    config_operation: int = field(
        Int8,
        doc="The change: 0 set, 1 delete, 2 append to a list, 3 subtract from a list.",
        errors=("InvalidRequestError",),
    )
    value: str | None = field(String, nullable="0+", doc="The value; null when deleting.")


class AlterConfigsResource(Struct):
    """A resource and the changes to it."""

    resource_type: int = fields.resource_type()
    resource_name: str = fields.resource_name()
    configs: list[AlterableConfig] = field(
        Array(AlterableConfig),
        doc="The changes.",
        errors=("InvalidConfigurationError", "PolicyViolationError"),
    )


class IncrementalAlterConfigsRequest(
    Request["IncrementalAlterConfigsResponse"], api_key=44, versions="0-1", flexible="1+"
):
    """Change entries."""

    resources: list[AlterConfigsResource] = field(Array(AlterConfigsResource), doc="The resources.")
    validate_only: bool = field(Boolean, doc="Whether to validate only, without a change.")


class IncrementalAlterConfigsResponse(Response, api_key=44, versions="0-1", flexible="1+"):
    """One result per resource of the request."""

    throttle_time_ms: int = fields.throttle_time_ms()
    responses: list[AlterConfigsResourceResponse] = field(Array(AlterConfigsResourceResponse), doc="The results.")
