"""DescribeConfigs (API key 32): configurations of topics, brokers and others, and where each value comes from.

Versions 1–4; flexible from 4. v1: source and synonyms of a value. v3: type and documentation (KIP-569).
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Int8, Int16, String


class DescribeConfigsResource(Struct):
    """A resource to describe, and the names of its entries."""

    resource_type: int = fields.resource_type()
    resource_name: str = fields.resource_name()
    configuration_keys: list[str] | None = field(Array(String), nullable="0+", doc="The entries' names; null for all.")


class DescribeConfigsRequest(Request["DescribeConfigsResponse"], api_key=32, versions="1-4", flexible="4+"):
    """Ask for configurations."""

    resources: list[DescribeConfigsResource] = field(Array(DescribeConfigsResource), doc="The resources.")
    include_synonyms: bool = field(
        Boolean,
        versions="1+",
        doc="Whether to return the synonyms of each entry: other sources of its value.",
    )
    include_documentation: bool = field(
        Boolean, versions="3+", doc="Whether to return the documentation of each entry."
    )


class DescribeConfigsSynonym(Struct):
    """Another place that the value can come from, most specific first."""

    name: str = field(String, versions="1+", doc="The entry's name in that place.")
    value: str | None = field(String, versions="1+", nullable="0+", doc="The value in that place.")
    source: int = field(Int8, versions="1+", doc="The place, numbered as the source of an entry.")


class DescribeConfigsResourceResult(Struct):
    """A configuration entry."""

    name: str = field(String, doc="The entry's name.")
    value: str | None = field(String, nullable="0+", doc="The entry's value; null when it is secret or unset.")
    read_only: bool = field(Boolean, doc="Whether the entry cannot be changed.")
    config_source: int = fields.config_source(versions="1+")
    is_sensitive: bool = field(Boolean, doc="Whether the value is secret, and therefore null.")
    synonyms: list[DescribeConfigsSynonym] = field(
        Array(DescribeConfigsSynonym),
        versions="1+",
        ignorable=True,
        doc="The synonyms of the entry; empty if not requested.",
    )
    config_type: int = field(
        Int8,
        versions="3+",
        ignorable=True,
        doc="The entry's type: 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 "
        "password; 0 unknown.",
    )
    documentation: str | None = field(
        String,
        versions="3+",
        nullable="0+",
        ignorable=True,
        doc="The documentation of the entry; null if not requested.",
    )


class DescribeConfigsResult(Struct):
    """The entries of one resource."""

    error_code: int = field(
        Int16,
        doc="The error code of the resource; 0 for success.",
        errors=(
            "UnknownTopicOrPartitionError",
            "InvalidTopicError",
            "InvalidRequestError",
            "InvalidConfigurationError",
            "TopicAuthorizationFailedError",
            "ClusterAuthorizationFailedError",
        ),
    )
    error_message: str | None = fields.error_message(nullable="0+")
    resource_type: int = fields.resource_type()
    resource_name: str = fields.resource_name()
    configs: list[DescribeConfigsResourceResult] = field(Array(DescribeConfigsResourceResult), doc="The entries.")


class DescribeConfigsResponse(Response, api_key=32, versions="1-4", flexible="4+"):
    """One result per resource of the request."""

    throttle_time_ms: int = fields.throttle_time_ms()
    results: list[DescribeConfigsResult] = field(Array(DescribeConfigsResult), doc="The results.")
