"""The features of the cluster: what this software can do, and what new clusters are set to.

A level is part of the metadata (``FeatureLevelRecord``), except for ``kraft.version``, which the metadata log itself
carries in a control record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from triokafka.broker_stub.controller.image import MetadataImage, ResourceType
from triokafka.broker_stub.controller.outcome import NO_ERROR, ItemError, Outcome
from triokafka.errors import (
    BrokerResponseError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    UnsupportedVersionError,
)
from triokafka.protocol.message import Struct
from triokafka.protocol.stored.cluster_metadata import ConfigRecord, FeatureLevelRecord

if TYPE_CHECKING:
    from triokafka.protocol.api.update_features import (
        UpdateFeaturesRequest,
        UpdateFeaturesResponse,
    )

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
GROUP_VERSION: Final = "group.version"
TRANSACTION_VERSION: Final = "transaction.version"
ELIGIBLE_LEADER_REPLICAS: Final = "eligible.leader.replicas.version"
MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"

SUPPORTED: Final[Mapping[str, tuple[int, int]]] = {
    METADATA_VERSION: (7, 31),
    KRAFT_VERSION: (0, 1),
    GROUP_VERSION: (0, 1),
    TRANSACTION_VERSION: (0, 2),
    ELIGIBLE_LEADER_REPLICAS: (0, 1),
    # Set by Kafka when it formats a directory; without an effect here.
    "share.version": (0, 1),
    "streams.version": (0, 1),
}
"""Levels at which a metadata log can be opened, whoever wrote it."""

SERVED: Final[Mapping[str, tuple[int, int]]] = {
    METADATA_VERSION: (7, 25),
    KRAFT_VERSION: (0, 1),
    GROUP_VERSION: (0, 1),
    ELIGIBLE_LEADER_REPLICAS: (0, 1),
}
"""What clients are told. ``transaction.version`` comes with the APIs behind it (KIP-890)."""

INITIAL_LEVELS: Final[Mapping[str, int]] = {METADATA_VERSION: 25, GROUP_VERSION: 1, ELIGIBLE_LEADER_REPLICAS: 1}
"""Levels of a new cluster: the metadata of Kafka 4.0, which every Kafka 4 can read, both group protocols, and eligible
leader replicas, as in a new cluster of Kafka 4.1 and later (KIP-966)."""

INITIAL_KRAFT_VERSION: Final = 1


def initial_records(min_insync_replicas: str = "1") -> list[Struct]:
    """Return the first records of a new metadata log: the levels, and what eligible leader replicas need with them."""
    levels = [FeatureLevelRecord(name=name, feature_level=level) for name, level in INITIAL_LEVELS.items()]
    return [*levels, _cluster_min_insync_replicas(min_insync_replicas)]


def has_eligible_leader_replicas(image: MetadataImage) -> bool:
    """Whether replicas that left the in-sync set without missing anything may still lead (KIP-966)."""
    return image.features.get(ELIGIBLE_LEADER_REPLICAS, 0) > 0


def _cluster_min_insync_replicas(value: str) -> ConfigRecord:
    return ConfigRecord(resource_type=ResourceType.BROKER, resource_name="", name=MIN_INSYNC_REPLICAS, value=value)


def _eligible_leader_replicas_begin(image: MetadataImage, min_insync_replicas: str) -> list[Struct]:
    """The records that make min.insync.replicas the cluster's alone: all brokers must count with the same number."""
    records: list[Struct] = []
    if MIN_INSYNC_REPLICAS not in image.broker_configs(None):
        records.append(_cluster_min_insync_replicas(min_insync_replicas))
    for (kind, name), configs in image.configs.items():
        if kind == ResourceType.BROKER and name and MIN_INSYNC_REPLICAS in configs:
            records.append(ConfigRecord(resource_type=kind, resource_name=name, name=MIN_INSYNC_REPLICAS, value=None))
    return records


def check(image: MetadataImage) -> None:
    """Refuse a metadata log whose features are beyond this software.

    Raises:
        UnsupportedVersionError: a level, or a feature, that nobody here knows.
    """
    for name, level in image.features.items():
        low, high = SUPPORTED.get(name, (0, 0))
        if not low <= level <= high:
            raise UnsupportedVersionError(
                f"the metadata log has {name} at level {level}; levels {low} to {high} are supported"
            )


def finalized(image: MetadataImage, kraft_version: int) -> dict[str, int]:
    """The levels that ApiVersions tells clients: those of the image that this broker serves, and the quorum's own."""
    levels = {name: min(level, SERVED[name][1]) for name, level in image.features.items() if name in SERVED}
    if kraft_version:
        levels[KRAFT_VERSION] = kraft_version
    return levels


# UpdateFeatures

_UPGRADE: Final = 1
_SAFE_DOWNGRADE: Final = 2
_UNSAFE_DOWNGRADE: Final = 3


def update_features(
    image: MetadataImage,
    request: UpdateFeaturesRequest,
    kraft_version: int,
    *,
    version: int = 2,
    min_insync_replicas: str = "1",
) -> Outcome[UpdateFeaturesResponse]:
    """Change levels of features: all that the request names, or none (KIP-584, KIP-1022).

    ``min_insync_replicas`` is what the brokers were started with; the cluster keeps it with eligible leader replicas.
    """
    from triokafka.protocol.api.update_features import UpdatableFeatureResult, UpdateFeaturesResponse

    records: list[Struct] = []
    failure = NO_ERROR
    try:
        if len({update.feature for update in request.feature_updates}) < len(request.feature_updates):
            raise InvalidRequestError("A feature is there twice.")
        for update in request.feature_updates:
            kind = update.upgrade_type if version >= 1 else _SAFE_DOWNGRADE if update.allow_downgrade else _UPGRADE
            try:
                current = kraft_version if update.feature == KRAFT_VERSION else image.features.get(update.feature, 0)
                _check_update(update.feature, current, update.max_version_level, kind)
            except BrokerResponseError as error:
                raise type(error)(
                    f"The update failed for all features since the following feature had an error: {error}"
                ) from None
            if update.max_version_level != current:
                records.append(FeatureLevelRecord(name=update.feature, feature_level=update.max_version_level))
                if update.feature == ELIGIBLE_LEADER_REPLICAS and update.max_version_level:
                    records += _eligible_leader_replicas_begin(image, min_insync_replicas)
    except BrokerResponseError as error:
        failure, records = ItemError.of(error), []
    results = [
        UpdatableFeatureResult(feature=update.feature, error_code=failure.code, error_message=failure.message)
        for update in request.feature_updates
    ]
    return Outcome(
        [] if request.validate_only else records,
        UpdateFeaturesResponse(
            error_code=failure.code, error_message=failure.message, results=results if version < 2 else []
        ),
    )


def _check_update(name: str, current: int, level: int, kind: int) -> None:
    low, high = SERVED.get(name, (0, 0))
    if name not in SERVED:
        raise InvalidUpdateVersionError(
            f"Invalid update version {level} for feature {name}. Controller does not support this feature."
        )
    if kind not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        raise InvalidRequestError(f"Invalid upgrade type {kind} for feature {name}.")
    if level < 0:
        raise InvalidUpdateVersionError(f"Invalid update version {level} for feature {name}. It is below 0.")
    if level == current:
        return
    if not low <= level <= high:
        raise InvalidUpdateVersionError(
            f"Invalid update version {level} for feature {name}. Controllers support versions {low}-{high}."
        )
    if level > current and kind != _UPGRADE:
        raise InvalidUpdateVersionError(
            f"Invalid update version {level} for feature {name}. Can't downgrade to a newer version."
        )
    if level < current and not (name == ELIGIBLE_LEADER_REPLICAS and kind != _UPGRADE):
        if kind == _UPGRADE:
            raise InvalidUpdateVersionError(
                f"Invalid update version {level} for feature {name}. Can't downgrade the version of this feature "
                "without setting the upgrade type to either safe or unsafe downgrade."
            )
        raise InvalidUpdateVersionError(
            f"Invalid update version {level} for feature {name}. Refusing to perform the requested downgrade because "
            "it might delete metadata information."
        )
