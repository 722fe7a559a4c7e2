"""UpdateFeatures (API key 57): raise, lower or remove the level of features (KIP-584).

Versions 0–2; flexible. v1: kinds of upgrades, and checking only (KIP-778). v2: no results by feature.
"""

from __future__ import annotations

from functools import partial

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Int8, Int16, String

_error_code = partial(
    field,
    Int16,
    doc="The error code; 0 means success.",
    errors=(
        "InvalidUpdateVersionError",
        "FeatureUpdateFailedError",
        "InvalidRequestError",
        "ClusterAuthorizationFailedError",
        "NotControllerError",
    ),
)


class FeatureUpdateKey(Struct):
    """One feature and its new level."""

    feature: str = field(String, doc="The feature's name.")
    max_version_level: int = field(Int16, doc="The new level of the feature; 0 removes the feature.")
    allow_downgrade: bool = field(Boolean, versions="0", doc="Whether the level may be lowered, in version 0.")
    upgrade_type: int = field(
        Int8,
        versions="1+",
        default=1,
        doc="The allowed change: 1 upgrade, 2 lossless downgrade, 3 downgrade that may lose metadata.",
    )


class UpdateFeaturesRequest(Request["UpdateFeaturesResponse"], api_key=57, versions="0-2", flexible="0+"):
    """Change levels of features."""

    timeout_ms: int = fields.timeout_ms(default=60000, errors=())
    feature_updates: list[FeatureUpdateKey] = field(Array(FeatureUpdateKey), doc="The features.")
    validate_only: bool = field(
        Boolean, versions="1+", default=False, doc="Whether to validate only, without a change."
    )


class UpdatableFeatureResult(Struct):
    """The outcome for one feature."""

    feature: str = field(String, doc="The feature's name.")
    error_code: int = _error_code()
    error_message: str | None = fields.error_message(nullable="0+")


class UpdateFeaturesResponse(Response, api_key=57, versions="0-2", flexible="0+"):
    """The outcome."""

    throttle_time_ms: int = fields.throttle_time_ms()
    error_code: int = _error_code()
    error_message: str | None = fields.error_message(nullable="0+")
    results: list[UpdatableFeatureResult] = field(
        Array(UpdatableFeatureResult), versions="0-1", ignorable=True, doc="The results by feature."
    )
