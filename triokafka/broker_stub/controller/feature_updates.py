"""Changes of feature levels: UpdateFeatures (KIP-584, KIP-1022)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

from triokafka.broker_stub.controller.activation_records import cluster_min_insync_replicas
from triokafka.broker_stub.controller.outcome import Outcome
from triokafka.broker_stub.metadata.features import (
    DEPENDENCIES,
    ELIGIBLE_LEADER_REPLICAS,
    KRAFT_VERSION,
    METADATA_VERSION,
    MIN_INSYNC_REPLICAS,
    SERVED,
    SUPPORTED,
    changes_metadata,
    metadata_version,
    registers_controllers,
)
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.broker_stub.metadata.item_error import NO_ERROR, ItemError
from triokafka.errors import BrokerResponseError, InvalidRequestError, InvalidUpdateVersionError
from triokafka.named_tuple import NamedTuple
from triokafka.protocol.configuration import ConfigResourceType
from triokafka.protocol.message import Struct
from triokafka.protocol.stored import cluster_metadata as stored

if TYPE_CHECKING:
    from triokafka.protocol.api.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

_UPGRADE: Final = 1
_SAFE_DOWNGRADE: Final = 2
_UNSAFE_DOWNGRADE: Final = 3


def _eligible_leader_replicas_begin(image: MetadataImage, min_insync_replicas: str) -> list[Struct]:
    """Return the records that set min.insync.replicas cluster-wide only, since all brokers must use the same value."""
    records: list[Struct] = []
    if MIN_INSYNC_REPLICAS not in image.broker_configs(None):
        records.append(cluster_min_insync_replicas(min_insync_replicas))
    for (kind, name), configs in image.configs.items():
        if kind == ConfigResourceType.BROKER and name and MIN_INSYNC_REPLICAS in configs:
            records.append(
                stored.ConfigRecord(resource_type=kind, resource_name=name, name=MIN_INSYNC_REPLICAS, value=None)
            )
    return records


class FeatureSupport(NamedTuple):
    """The nodes that must support a level: this controller, and the members of the quorum (None if unknown)."""

    node_id: int = -1
    quorum_ids: Collection[int] | None = None


_THIS_NODE_ONLY: Final = FeatureSupport()


def update_features(
    image: MetadataImage,
    request: UpdateFeaturesRequest,
    kraft_version: int,
    *,
    version: int = 2,
    min_insync_replicas: str = "1",
    support: FeatureSupport = _THIS_NODE_ONLY,
    upgrade_kraft_version: Callable[[int, bool], None] | None = None,
) -> Outcome[UpdateFeaturesResponse]:
    """Change levels of features: all that the request names, or none (KIP-584, KIP-1022).

    Every registered broker and controller must support a new level. ``metadata.version`` can be downgraded only across
    levels that did not change the metadata. ``min_insync_replicas`` is the brokers' static value, which becomes
    cluster-wide with eligible leader replicas. ``upgrade_kraft_version`` raises ``kraft.version`` in the metadata log,
    or with True only checks that it could; without it, that feature stays as it is.
    """
    from triokafka.protocol.api.update_features import UpdatableFeatureResult, UpdateFeaturesResponse

    records: list[Struct] = []
    failure = NO_ERROR
    proposed = {METADATA_VERSION: metadata_version(image.features), **image.features}
    proposed |= {update.feature: update.max_version_level for update in request.feature_updates}
    try:
        if len({update.feature for update in request.feature_updates}) < len(request.feature_updates):
            raise InvalidRequestError("The request names a feature twice.")
        for update in request.feature_updates:
            kind = update.upgrade_type if version >= 1 else _SAFE_DOWNGRADE if update.allow_downgrade else _UPGRADE
            name, level = update.feature, update.max_version_level
            try:
                current = kraft_version if name == KRAFT_VERSION else _current_level(image, name)
                _check_update(image, name, current, level, kind, support)
                if name == KRAFT_VERSION:
                    if level > current:
                        _upgrade_kraft_version(level, request.validate_only, upgrade_kraft_version)
                        records.append(stored.NoOpRecord())
                    continue
                _check_dependencies(name, level, proposed)
            except BrokerResponseError as error:
                raise type(error)(
                    f"The update failed for all features since the following feature had an error: {error}"
                ) from None
            if level != current:
                records.append(stored.FeatureLevelRecord(name=name, feature_level=level))
                if name == ELIGIBLE_LEADER_REPLICAS and level:
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


def _current_level(image: MetadataImage, name: str) -> int:
    return metadata_version(image.features) if name == METADATA_VERSION else image.features.get(name, 0)


def _check_update(
    image: MetadataImage, name: str, current: int, level: int, kind: int, support: FeatureSupport
) -> None:
    """Check a new level against the nodes that must support it, and the direction of the change. Raises
    `InvalidUpdateVersionError`.
    """
    prefix = f"Invalid update version {level} for feature {name}."
    if kind not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        raise InvalidUpdateVersionError(f"{prefix} The controller does not support the given upgrade type.")
    if level < 0:
        raise InvalidUpdateVersionError(f"{prefix} A feature version cannot be less than 0.")
    problem = _unsupported(image, name, level, support)
    if problem is not None:
        raise InvalidUpdateVersionError(f"{prefix} {problem}")
    if level > current and kind != _UPGRADE:
        raise InvalidUpdateVersionError(f"{prefix} Can't downgrade to a newer version.")
    if level >= current:
        return
    if kind == _UPGRADE:
        raise InvalidUpdateVersionError(
            f"{prefix} Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade."
        )
    if name == KRAFT_VERSION:
        raise InvalidUpdateVersionError(f"{prefix} Can't downgrade the version of this feature.")
    if name == METADATA_VERSION and changes_metadata(level, current):
        raise InvalidUpdateVersionError(
            f"Unsupported metadata.version downgrade from {current} to {level}. "
            + (
                "Unsafe metadata downgrade is not supported in this version."
                if kind == _UNSAFE_DOWNGRADE
                else "Refusing to perform the requested downgrade because it might delete metadata information."
            )
        )


def _unsupported(image: MetadataImage, name: str, level: int, support: FeatureSupport) -> str | None:
    """Return why a node does not support a level, or None if all do."""
    nodes: list[tuple[str, tuple[int, int] | None]] = [(f"Local controller {support.node_id}", SERVED.get(name))]
    nodes += [
        (f"Broker {broker.broker_id}", broker.features.get(name))
        for broker in sorted(image.brokers.values(), key=lambda broker: broker.broker_id)
    ]
    if registers_controllers(image):
        for controller in sorted(image.controllers.values(), key=lambda controller: controller.controller_id):
            if controller.controller_id != support.node_id:
                ranges = {f.name: (f.min_supported_version, f.max_supported_version) for f in controller.features}
                nodes.append((f"Controller {controller.controller_id}", ranges.get(name)))
    for what, supported in nodes:
        low, high = supported or (0, 0)
        if not low <= level <= high:
            if name in SUPPORTED and name not in SERVED:
                return (
                    f"{what} only supports versions 0-0: it does not implement what this feature enables. Update the "
                    "other features without this one, by name instead of by release."
                )
            if high == 0:
                return f"{what} does not support this feature."
            return f"{what} only supports versions {low}-{high}"
    if registers_controllers(image):
        for node_id in support.quorum_ids or ():
            if node_id != support.node_id and node_id not in image.controllers:
                return f"controller {node_id} has not registered, and may not support this feature"
    return None


def _check_dependencies(name: str, level: int, proposed: Mapping[str, int]) -> None:
    if name not in SUPPORTED:
        raise InvalidUpdateVersionError(f"Invalid update version {level} for feature {name}. Feature {name} not found.")
    for needed, lowest in DEPENDENCIES.get((name, level), {}).items():
        if proposed.get(needed, 0) < lowest:
            raise InvalidUpdateVersionError(
                f"Invalid update version {level} for feature {name}. {name} could not be set to {level} because it "
                f"depends on {needed} level {lowest}"
            )


def _upgrade_kraft_version(
    level: int, validate_only: bool, upgrade_kraft_version: Callable[[int, bool], None] | None
) -> None:
    if upgrade_kraft_version is None:
        raise InvalidUpdateVersionError(
            f"Invalid update version {level} for feature {KRAFT_VERSION}. This controller cannot change the quorum."
        )
    upgrade_kraft_version(level, validate_only)
