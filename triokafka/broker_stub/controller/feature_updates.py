"""Changes of feature levels: the first records of a cluster, and UpdateFeatures (KIP-584, KIP-1022)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from triokafka.broker_stub.controller.outcome import Outcome
from triokafka.broker_stub.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS,
    INITIAL_LEVELS,
    KRAFT_VERSION,
    MIN_INSYNC_REPLICAS,
    SERVED,
)
from triokafka.broker_stub.metadata.image import MetadataImage, ResourceType
from triokafka.broker_stub.metadata.item_error import NO_ERROR, ItemError
from triokafka.errors import BrokerResponseError, InvalidRequestError, InvalidUpdateVersionError
from triokafka.protocol.message import Struct
from triokafka.protocol.stored.cluster_metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)

if TYPE_CHECKING:
    from triokafka.protocol.api.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

_UPGRADE: Final = 1
_SAFE_DOWNGRADE: Final = 2
_UNSAFE_DOWNGRADE: Final = 3


def initial_records(min_insync_replicas: str = "1") -> list[Struct]:
    """Return the first records of a new metadata log: the feature levels, and the records for eligible leader
    replicas.
    """
    levels = [FeatureLevelRecord(name=name, feature_level=level) for name, level in INITIAL_LEVELS.items()]
    return [*levels, _cluster_min_insync_replicas(min_insync_replicas)]


def activation_records(
    image: MetadataImage,
    bootstrap_records: Sequence[Struct],
    min_insync_replicas: str,
    *,
    in_transaction: bool,
) -> list[Struct]:
    """Return the first records of a controller that has become active.

    It aborts a metadata transaction that an earlier one left unfinished. The first controller of a cluster also appends
    the cluster's first records, in one transaction (KIP-868): those of ``bootstrap.checkpoint``, or else
    `initial_records`.
    """
    records: list[Struct] = [AbortTransactionRecord(reason="the controller has changed")] if in_transaction else []
    if image.features:
        return records
    first = list(bootstrap_records) or initial_records(min_insync_replicas)
    levels = {record.name: record.feature_level for record in first if isinstance(record, FeatureLevelRecord)}
    has_value = any(isinstance(record, ConfigRecord) and record.name == MIN_INSYNC_REPLICAS for record in first)
    if levels.get(ELIGIBLE_LEADER_REPLICAS) and not has_value:
        first.append(_cluster_min_insync_replicas(min_insync_replicas))
    return [*records, BeginTransactionRecord(name="Bootstrap records"), *first, EndTransactionRecord()]


def _cluster_min_insync_replicas(value: str) -> ConfigRecord:
    return ConfigRecord(resource_type=ResourceType.BROKER, resource_name="", name=MIN_INSYNC_REPLICAS, value=value)


def _eligible_leader_replicas_begin(image: MetadataImage, min_insync_replicas: str) -> list[Struct]:
    """Return the records that set min.insync.replicas cluster-wide only, since all brokers must use the same value."""
    records: list[Struct] = []
    if MIN_INSYNC_REPLICAS not in image.broker_configs(None):
        records.append(_cluster_min_insync_replicas(min_insync_replicas))
    for (kind, name), configs in image.configs.items():
        if kind == ResourceType.BROKER and name and MIN_INSYNC_REPLICAS in configs:
            records.append(ConfigRecord(resource_type=kind, resource_name=name, name=MIN_INSYNC_REPLICAS, value=None))
    return records


def update_features(
    image: MetadataImage,
    request: UpdateFeaturesRequest,
    kraft_version: int,
    *,
    version: int = 2,
    min_insync_replicas: str = "1",
) -> Outcome[UpdateFeaturesResponse]:
    """Change levels of features: all that the request names, or none (KIP-584, KIP-1022).

    ``min_insync_replicas`` is the brokers' static value, which becomes cluster-wide with eligible leader replicas.
    """
    from triokafka.protocol.api.update_features import UpdatableFeatureResult, UpdateFeaturesResponse

    records: list[Struct] = []
    failure = NO_ERROR
    try:
        if len({update.feature for update in request.feature_updates}) < len(request.feature_updates):
            raise InvalidRequestError("The request names a feature twice.")
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
