from __future__ import annotations

import pytest

from tests.unit.broker_stub.controller.clusters import cluster
from triokafka.broker_stub.controller import features
from triokafka.errors import UnsupportedVersionError
from triokafka.protocol.stored.cluster_metadata import FeatureLevelRecord


def level(name: str, number: int) -> FeatureLevelRecord:
    return FeatureLevelRecord(name=name, feature_level=number)


def test_clients_are_told_only_what_this_broker_serves() -> None:
    """A client that is told of transactions of version 2 would use them (KIP-890)."""
    image = cluster(level("metadata.version", 30), level("transaction.version", 2), level("group.version", 1))
    assert features.finalized(image, 1) == {"metadata.version": 25, "kraft.version": 1, "group.version": 1}
    assert "kraft.version" not in features.finalized(image, 0)


def test_level_zero_is_no_feature() -> None:
    assert "group.version" not in cluster(level("group.version", 1), level("group.version", 0)).features


def test_features_of_kafkas_own_format_are_accepted_and_unknown_ones_are_not() -> None:
    features.check(cluster(level("share.version", 1), level("streams.version", 1), level("metadata.version", 30)))
    with pytest.raises(UnsupportedVersionError, match=r"new\.feature at level 1"):
        features.check(cluster(level("new.feature", 1)))


def test_levels_of_a_new_cluster_are_supported() -> None:
    features.check(cluster(*features.initial_records()))
    for name, (low, high) in features.SERVED.items():
        assert features.SUPPORTED[name][0] <= low <= high <= features.SUPPORTED[name][1]
