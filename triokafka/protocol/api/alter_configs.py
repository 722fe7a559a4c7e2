"""AlterConfigs (API key 33)."""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Int8, Int16, Int32, String


class AlterableConfig(Struct):
    """One item of ``configs``."""

    name: str = field(String, doc="Name.")
    value: str | None = field(String, nullable="0+", doc="Value.")


class AlterConfigsResource(Struct):
    """One item of ``resources``."""

    resource_type: int = field(Int8, doc="Resource type.")
    resource_name: str = field(String, doc="Resource name.")
    configs: list[AlterableConfig] = field(Array(AlterableConfig), doc="Configs.")


class AlterConfigsRequest(Request["AlterConfigsResponse"], api_key=33, versions="0-2", flexible="2+"):
    """Ask."""

    resources: list[AlterConfigsResource] = field(Array(AlterConfigsResource), doc="Resources.")
    validate_only: bool = field(Boolean, doc="Validate only.")


class AlterConfigsResourceResponse(Struct):
    """One item of ``responses``."""

    error_code: int = field(Int16, doc="Error code.")
    error_message: str | None = field(String, nullable="0+", doc="Error message.")
    resource_type: int = field(Int8, doc="Resource type.")
    resource_name: str = field(String, doc="Resource name.")


class AlterConfigsResponse(Response, api_key=33, versions="0-2", flexible="2+"):
    """The answer."""

    throttle_time_ms: int = field(Int32, doc="Throttle time ms.")
    responses: list[AlterConfigsResourceResponse] = field(Array(AlterConfigsResourceResponse), doc="Responses.")
