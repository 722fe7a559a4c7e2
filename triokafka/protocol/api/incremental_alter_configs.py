"""IncrementalAlterConfigs (API key 44): change single configuration entries of resources (KIP-339).

Versions 0–1; flexible from 1.
"""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Int8, Int16, Int32, String


class AlterableConfig(Struct):
    """A change of one entry."""

    name: str = field(String, doc="The entry's name.")
    config_operation: int = field(
        Int8,
        doc="What to do: 0 set, 1 delete, 2 append to a list, 3 take out of a list.",
        errors=("InvalidRequestError",),
    )
    value: str | None = field(String, nullable="0+", doc="The value; null when deleting.")


class AlterConfigsResource(Struct):
    """A resource and the changes to it."""

    resource_type: int = field(
        Int8,
        doc="The kind of resource: 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.",
        errors=("InvalidRequestError",),
    )
    resource_name: str = field(
        String,
        doc="The resource: a topic's name, or a broker's id as text, empty for the default of all brokers.",
        errors=("UnknownTopicOrPartitionError", "InvalidTopicError", "InvalidRequestError"),
    )
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
    validate_only: bool = field(Boolean, doc="Whether only to check, and change nothing.")


class AlterConfigsResourceResponse(Struct):
    """The outcome for one resource."""

    error_code: int = field(
        Int16,
        doc="Why nothing was changed; 0 when it was, or could be.",
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
    error_message: str | None = field(
        String,
        nullable="0+",
        doc="The error in words; null when there was none or the broker has nothing to add.",
    )
    resource_type: int = field(
        Int8,
        doc="The kind of resource: 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.",
        errors=("InvalidRequestError",),
    )
    resource_name: str = field(
        String,
        doc="The resource: a topic's name, or a broker's id as text, empty for the default of all brokers.",
        errors=("UnknownTopicOrPartitionError", "InvalidTopicError", "InvalidRequestError"),
    )


class IncrementalAlterConfigsResponse(Response, api_key=44, versions="0-1", flexible="1+"):
    """One result per resource asked for."""

    throttle_time_ms: int = field(
        Int32,
        doc="How many milliseconds the client shall stay silent, because it exceeded a quota; 0 for none.",
    )
    responses: list[AlterConfigsResourceResponse] = field(Array(AlterConfigsResourceResponse), doc="The results.")
