"""The features of a cluster: the levels that this software supports, and those of a new cluster.

A level is part of the metadata (``FeatureLevelRecord``), except for ``kraft.version``, which the metadata log itself
carries in a control record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.errors import UnsupportedVersionError

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
GROUP_VERSION: Final = "group.version"
TRANSACTION_VERSION: Final = "transaction.version"
ELIGIBLE_LEADER_REPLICAS: Final = "eligible.leader.replicas.version"
MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"

SUPPORTED: Final[Mapping[str, tuple[int, int]]] = {
    METADATA_VERSION: (7, 30),
    KRAFT_VERSION: (0, 1),
    GROUP_VERSION: (0, 1),
    TRANSACTION_VERSION: (0, 2),
    ELIGIBLE_LEADER_REPLICAS: (0, 1),
    # Set by Kafka when it formats a directory; without an effect here.
    "share.version": (0, 1),
    "streams.version": (0, 1),
}
"""Levels at which this software opens a metadata log: those of Kafka 4.3."""

SERVED: Final[Mapping[str, tuple[int, int]]] = {
    METADATA_VERSION: (7, 30),
    KRAFT_VERSION: (0, 1),
    GROUP_VERSION: (0, 1),
    TRANSACTION_VERSION: (0, 2),
    ELIGIBLE_LEADER_REPLICAS: (0, 1),
}
"""Levels that ApiVersions reports."""

INITIAL_LEVELS: Final[Mapping[str, int]] = {
    METADATA_VERSION: 25,
    GROUP_VERSION: 1,
    TRANSACTION_VERSION: 2,
    ELIGIBLE_LEADER_REPLICAS: 1,
}
"""Levels of a new cluster: the metadata of Kafka 4.0, which every Kafka 4 can read, both group protocols, transactions
whose every end bumps the epoch (KIP-890), and eligible leader replicas, as in a new cluster of Kafka 4.1 and later
(KIP-966)."""

NO_EPOCH_ON_ISR_SHRINK: Final = 12
"""The ``metadata.version`` (3.6-IV0) from which a smaller in-sync set begins no new leader epoch."""
_DELEGATION_TOKENS: Final = 14
_CONTROLLER_REGISTRATION: Final = 15
_DIRECTORY_ASSIGNMENT: Final = 17
_CORDONED_DIRECTORIES: Final = 30


DEPENDENCIES: Final[Mapping[tuple[str, int], Mapping[str, int]]] = {
    (ELIGIBLE_LEADER_REPLICAS, 1): {METADATA_VERSION: 23},
}
"""Levels of other features that a level of a feature needs."""

_METADATA_CHANGES: Final = frozenset({7, 8, 11, 13, 14, 15, 17, 23, 30})
"""Levels of ``metadata.version`` that added records or fields; a downgrade past one of them would lose metadata."""


def changes_metadata(low: int, high: int) -> bool:
    """Whether metadata written at ``metadata.version`` ``high`` may be unreadable at the lower level ``low``."""
    return any(low < level <= high for level in _METADATA_CHANGES)


def metadata_version(levels: Mapping[str, int]) -> int:
    """Return the level of ``metadata.version``; the lowest supported one where no record has set it."""
    return levels.get(METADATA_VERSION, SUPPORTED[METADATA_VERSION][0])


def has_eligible_leader_replicas(image: MetadataImage) -> bool:
    """Whether replicas that left the in-sync set with all committed records may still lead (KIP-966)."""
    return image.features.get(ELIGIBLE_LEADER_REPLICAS, 0) > 0


def assigns_directories(image: MetadataImage) -> bool:
    """Whether the metadata has the log directory of every replica (KIP-858, ``metadata.version`` 3.7-IV2)."""
    return metadata_version(image.features) >= _DIRECTORY_ASSIGNMENT


def cordons_directories(image: MetadataImage) -> bool:
    """Whether log directories can be cordoned (KIP-1066, ``metadata.version`` 4.3-IV0)."""
    return metadata_version(image.features) >= _CORDONED_DIRECTORIES


def has_delegation_tokens(image: MetadataImage) -> bool:
    """Whether the metadata may have delegation tokens (``metadata.version`` 3.6-IV2)."""
    return metadata_version(image.features) >= _DELEGATION_TOKENS


def registers_controllers(image: MetadataImage) -> bool:
    """Whether controllers register (KIP-919, ``metadata.version`` 3.7-IV0)."""
    return metadata_version(image.features) >= _CONTROLLER_REGISTRATION


def check(image: MetadataImage) -> None:
    """Reject a metadata log with unsupported features.

    Raises:
        UnsupportedVersionError: the log has an unknown feature or an unsupported level.
    """
    for name, level in image.features.items():
        low, high = SUPPORTED.get(name, (0, 0))
        if not low <= level <= high:
            raise UnsupportedVersionError(
                f"the metadata log has {name} at level {level}; levels {low} to {high} are supported"
            )


def finalized(image: MetadataImage, kraft_version: int) -> dict[str, int]:
    """Return the levels that ApiVersions reports: those of the image that this broker serves, and ``kraft.version``."""
    levels = {name: min(level, SERVED[name][1]) for name, level in image.features.items() if name in SERVED}
    if kraft_version:
        levels[KRAFT_VERSION] = kraft_version
    return levels
