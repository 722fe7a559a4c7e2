"""ApiVersions (API key 18)."""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Int16, Int32, Int64, String


class ApiVersionsRequest(Request["ApiVersionsResponse"], api_key=18, versions="0-4", flexible="3+"):
    """Ask."""

    client_software_name: str = field(String, versions="3+", ignorable=True, doc="Client software name.")
    client_software_version: str = field(String, versions="3+", ignorable=True, doc="Client software version.")


class ApiVersion(Struct):
    """One item of ``api_keys``."""

    api_key: int = field(Int16, doc="Api key.")
    min_version: int = field(Int16, doc="Min version.")
    max_version: int = field(Int16, doc="Max version.")


class SupportedFeatureKey(Struct):
    """One item of ``supported_features``."""

    name: str = field(String, versions="3+", doc="Name.")
    min_version: int = field(Int16, versions="3+", doc="Min version.")
    max_version: int = field(Int16, versions="3+", doc="Max version.")


class FinalizedFeatureKey(Struct):
    """One item of ``finalized_features``."""

    name: str = field(String, versions="3+", doc="Name.")
    max_version_level: int = field(Int16, versions="3+", doc="Max version level.")
    min_version_level: int = field(Int16, versions="3+", doc="Min version level.")


class ApiVersionsResponse(Response, api_key=18, versions="0-4", flexible="3+"):
    """The answer."""

    error_code: int = field(Int16, doc="Error code.")
    api_keys: list[ApiVersion] = field(Array(ApiVersion), doc="Api keys.")
    throttle_time_ms: int = field(Int32, versions="1+", ignorable=True, doc="Throttle time ms.")
    supported_features: list[SupportedFeatureKey] = field(
        Array(SupportedFeatureKey),
        versions="3+",
        tag=0,
        tagged="3+",
        ignorable=True,
        doc="Supported features.",
    )
    finalized_features_epoch: int = field(
        Int64,
        versions="3+",
        tag=1,
        tagged="3+",
        ignorable=True,
        default=-1,
        doc="Finalized features epoch.",
    )
    finalized_features: list[FinalizedFeatureKey] = field(
        Array(FinalizedFeatureKey),
        versions="3+",
        tag=2,
        tagged="3+",
        ignorable=True,
        doc="Finalized features.",
    )
    zk_migration_ready: bool = field(
        Boolean,
        versions="3+",
        tag=3,
        tagged="3+",
        ignorable=True,
        doc="Zk migration ready.",
    )
