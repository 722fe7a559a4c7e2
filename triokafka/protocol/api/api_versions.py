"""ApiVersions (API key 18): the APIs and versions of a broker. The first request on a connection.

Versions 0–4; flexible from 3, except that the answer's header never is. v1: throttle time. v3: name and version of the
client's software; features of the cluster in the answer. v4: a feature's smallest version may be 0.

A broker that does not know the request's version answers in version 0 with UnsupportedVersionError and its versions.
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Int16, Int64, String


class ApiVersionsRequest(Request["ApiVersionsResponse"], api_key=18, versions="0-4", flexible="3+"):
    """Ask for the broker's APIs and versions."""

    client_software_name: str = field(
        String,
        versions="3+",
        ignorable=True,
        doc="The client library's name.",
        errors=("InvalidRequestError",),
    )
    client_software_version: str = field(
        String,
        versions="3+",
        ignorable=True,
        doc="The client library's version.",
        errors=("InvalidRequestError",),
    )


class ApiVersion(Struct):
    """The versions of one API."""

    api_key: int = field(Int16, doc="The API's key.")
    min_version: int = field(Int16, doc="The smallest version.")
    max_version: int = field(Int16, doc="The greatest version.")


class SupportedFeatureKey(Struct):
    """A feature that the broker could run."""

    name: str = field(String, versions="3+", doc="The feature's name.")
    min_version: int = field(Int16, versions="3+", doc="The smallest version.")
    max_version: int = field(Int16, versions="3+", doc="The greatest version.")


class FinalizedFeatureKey(Struct):
    """A feature in the level that the whole cluster runs."""

    name: str = field(String, versions="3+", doc="The feature's name.")
    max_version_level: int = field(Int16, versions="3+", doc="The level that is in force.")
    min_version_level: int = field(Int16, versions="3+", doc="The smallest level that is still allowed.")


class ApiVersionsResponse(Response, api_key=18, versions="0-4", flexible="3+"):
    """The versions of every API, and the features of the cluster."""

    error_code: int = field(
        Int16,
        doc="UnsupportedVersionError when the request's version is unknown; the answer is then of version 0.",
        errors=("UnsupportedVersionError", "InvalidRequestError"),
    )
    api_keys: list[ApiVersion] = field(Array(ApiVersion), doc="The APIs that this listener answers.")
    throttle_time_ms: int = fields.throttle_time_ms(versions="1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = field(
        Array(SupportedFeatureKey), versions="3+", tag=0, ignorable=True, doc="The features that the broker can run."
    )
    finalized_features_epoch: int = field(
        Int64,
        versions="3+",
        tag=1,
        ignorable=True,
        default=-1,
        doc="The number of the finalized features' state; a greater one is newer; -1 when unknown.",
    )
    finalized_features: list[FinalizedFeatureKey] = field(
        Array(FinalizedFeatureKey), versions="3+", tag=2, ignorable=True, doc="The features that the cluster runs."
    )
    zk_migration_ready: bool = field(
        Boolean, versions="3+", tag=3, ignorable=True, doc="Left from the move off ZooKeeper: false by now."
    )
