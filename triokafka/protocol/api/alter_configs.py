"""AlterConfigs (API key 33): replace the whole configuration of resources.

Versions 0–2; flexible from 2. Entries that the request does not name return to their defaults; IncrementalAlterConfigs
keeps them.
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Int16, String


class AlterableConfig(Struct):
    """An entry."""

    name: str = field(String, doc="The entry's name.")
    value: str | None = field(String, nullable="0+", doc="The entry's value; null for the default.")


class AlterConfigsResource(Struct):
    """A resource and all entries of its new configuration."""

    resource_type: int = fields.resource_type()
    resource_name: str = fields.resource_name()
    configs: list[AlterableConfig] = field(
        Array(AlterableConfig),
        doc="All entries of the new configuration.",
        errors=("InvalidConfigurationError", "PolicyViolationError"),
    )


class AlterConfigsRequest(Request["AlterConfigsResponse"], api_key=33, versions="0-2", flexible="2+"):
    """Replace configurations."""

    resources: list[AlterConfigsResource] = field(Array(AlterConfigsResource), doc="The resources.")
    validate_only: bool = field(Boolean, doc="Whether to validate only, without a change.")


class AlterConfigsResourceResponse(Struct):
    """The outcome for one resource."""

    error_code: int = field(
        Int16,
        doc="The error code of the change; 0 if it was made, or validated.",
        errors=(
            "UnknownTopicOrPartitionError",
            "InvalidTopicError",
            "InvalidRequestError",
            "InvalidConfigurationError",
            "PolicyViolationError",
            "TopicAuthorizationFailedError",
            "ClusterAuthorizationFailedError",
            "NotControllerError",
        ),
    )
    error_message: str | None = fields.error_message(nullable="0+")
    resource_type: int = fields.resource_type()
    resource_name: str = fields.resource_name()


class AlterConfigsResponse(Response, api_key=33, versions="0-2", flexible="2+"):
    """One result per resource of the request."""

    throttle_time_ms: int = fields.throttle_time_ms()
    responses: list[AlterConfigsResourceResponse] = field(Array(AlterConfigsResourceResponse), doc="The results.")
