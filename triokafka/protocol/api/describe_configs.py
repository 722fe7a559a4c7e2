"""DescribeConfigs (API key 32)."""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Int8, Int16, Int32, String


class DescribeConfigsResource(Struct):
    """One item of ``resources``."""

    resource_type: int = field(Int8, doc="Resource type.")
    resource_name: str = field(String, doc="Resource name.")
    configuration_keys: list[str] | None = field(Array(String), nullable="0+", doc="Configuration keys.")


class DescribeConfigsRequest(Request["DescribeConfigsResponse"], api_key=32, versions="1-4", flexible="4+"):
    """Ask."""

    resources: list[DescribeConfigsResource] = field(Array(DescribeConfigsResource), doc="Resources.")
    include_synonyms: bool = field(Boolean, versions="1+", doc="Include synonyms.")
    include_documentation: bool = field(Boolean, versions="3+", doc="Include documentation.")


class DescribeConfigsSynonym(Struct):
    """One item of ``synonyms``."""

    name: str = field(String, versions="1+", doc="Name.")
    value: str | None = field(String, versions="1+", nullable="0+", doc="Value.")
    source: int = field(Int8, versions="1+", doc="Source.")


class DescribeConfigsResourceResult(Struct):
    """One item of ``configs``."""

    name: str = field(String, doc="Name.")
    value: str | None = field(String, nullable="0+", doc="Value.")
    read_only: bool = field(Boolean, doc="Read only.")
    config_source: int = field(Int8, versions="1+", ignorable=True, default=-1, doc="Config source.")
    is_sensitive: bool = field(Boolean, doc="Is sensitive.")
    synonyms: list[DescribeConfigsSynonym] = field(
        Array(DescribeConfigsSynonym),
        versions="1+",
        ignorable=True,
        doc="Synonyms.",
    )
    config_type: int = field(Int8, versions="3+", ignorable=True, doc="Config type.")
    documentation: str | None = field(String, versions="3+", nullable="0+", ignorable=True, doc="Documentation.")


class DescribeConfigsResult(Struct):
    """One item of ``results``."""

    error_code: int = field(Int16, doc="Error code.")
    error_message: str | None = field(String, nullable="0+", doc="Error message.")
    resource_type: int = field(Int8, doc="Resource type.")
    resource_name: str = field(String, doc="Resource name.")
    configs: list[DescribeConfigsResourceResult] = field(Array(DescribeConfigsResourceResult), doc="Configs.")


class DescribeConfigsResponse(Response, api_key=32, versions="1-4", flexible="4+"):
    """The answer."""

    throttle_time_ms: int = field(Int32, doc="Throttle time ms.")
    results: list[DescribeConfigsResult] = field(Array(DescribeConfigsResult), doc="Results.")
