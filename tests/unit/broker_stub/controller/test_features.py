from __future__ import annotations

import pytest

from tests.unit.broker_stub.clusters import broker, cluster, replayed
from triokafka.broker_stub.controller import activation_records, feature_updates
from triokafka.broker_stub.metadata import MetadataImage, features
from triokafka.errors import InvalidUpdateVersionError, UnsupportedVersionError
from triokafka.protocol.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from triokafka.protocol.stored.cluster_metadata import (
    BrokerFeature,
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    RegisterControllerRecord,
)


def level(name: str, number: int) -> FeatureLevelRecord:
    return FeatureLevelRecord(name=name, feature_level=number)


def test_clients_learn_only_the_features_that_this_broker_serves() -> None:
    """A client that learns of share groups would use them (KIP-932); transactions of version 2 are served (KIP-890)."""
    image = cluster(
        level("metadata.version", 30),
        level("transaction.version", 2),
        level("group.version", 1),
        level("share.version", 1),
    )
    served = {"metadata.version": 30, "kraft.version": 1, "group.version": 1, "transaction.version": 2}
    assert features.finalized(image, 1) == served
    assert "kraft.version" not in features.finalized(image, 0)


def test_level_zero_is_no_feature() -> None:
    assert "group.version" not in cluster(level("group.version", 1), level("group.version", 0)).features


def test_features_of_kafkas_own_format_are_accepted_and_unknown_ones_are_not() -> None:
    features.check(cluster(level("share.version", 1), level("streams.version", 1), level("metadata.version", 30)))
    with pytest.raises(UnsupportedVersionError, match=r"new\.feature at level 1"):
        features.check(cluster(level("new.feature", 1)))
    with pytest.raises(UnsupportedVersionError, match=r"metadata\.version at level 31; levels 7 to 30"):
        features.check(cluster(level("metadata.version", 31)))


def test_levels_of_a_new_cluster_are_supported() -> None:
    features.check(cluster(*activation_records.initial_records()))
    for name, (low, high) in features.SERVED.items():
        assert features.SUPPORTED[name][0] <= low <= high <= features.SUPPORTED[name][1]


def test_eligible_leader_replicas_come_with_one_min_insync_replicas_for_the_whole_cluster() -> None:
    """As a controller of Kafka 4.1 and later does it: for a new cluster, and when the feature is switched on."""
    new = replayed(activation_records.initial_records("2"))
    assert new.broker_configs(None) == {"min.insync.replicas": "2"}
    assert features.has_eligible_leader_replicas(new)

    own = ConfigRecord(resource_type=4, resource_name="1", name="min.insync.replicas", value="3")
    image = cluster(own)
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=features.ELIGIBLE_LEADER_REPLICAS, max_version_level=1, upgrade_type=1)
        ]
    )
    outcome = feature_updates.update_features(image, request, 1, min_insync_replicas="2")
    assert outcome.response.error_code == 0
    switched_on = replayed(outcome.records, image)
    assert switched_on.broker_configs(None) == {"min.insync.replicas": "2"}
    assert not switched_on.broker_configs(1), "no broker has another"

    request.feature_updates[0].max_version_level, request.feature_updates[0].upgrade_type = 0, 2
    outcome = feature_updates.update_features(switched_on, request, 1)
    assert outcome.response.error_code == 0
    assert not features.has_eligible_leader_replicas(replayed(outcome.records, switched_on))


def update(
    image: MetadataImage, name: str, level: int, kind: int = 1, *, kraft_version: int = 1, dry_run: bool = False
) -> tuple[int, str | None, MetadataImage]:
    request = UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)],
        validate_only=dry_run,
    )
    outcome = feature_updates.update_features(image, request, kraft_version)
    response = outcome.response
    return response.error_code, response.error_message, replayed(outcome.records, image)


def test_metadata_is_downgraded_only_where_nothing_can_be_lost() -> None:
    image = cluster()
    assert update(image, "metadata.version", 23, 2)[2].features["metadata.version"] == 23
    assert update(image, "metadata.version", 23, 2, dry_run=True)[2] is not None
    assert update(image, "metadata.version", 23, 2, dry_run=True)[2].features["metadata.version"] == 25
    for kind, words in ((1, "without setting the upgrade type"), (2, "might delete metadata"), (3, "not supported")):
        code, message, after = update(image, "metadata.version", 22, kind)
        assert code == InvalidUpdateVersionError.code and words in str(message) and after == image


def test_feature_that_a_broker_or_controller_lacks_is_not_upgraded() -> None:
    record = broker(2)
    record.features = [BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=20)]
    image = cluster(level("metadata.version", 20), record)
    assert "Broker 2 only supports versions 7-20" in str(update(image, "metadata.version", 21)[1])
    assert "Broker 2 does not support this feature" in str(update(image, "group.version", 1)[1])
    controller = RegisterControllerRecord(controller_id=9, end_points=[], features=[])
    image = cluster(controller)
    assert "Controller 9 does not support this feature" in str(update(image, "group.version", 1)[1])


def test_unknown_feature_is_not_set_to_zero() -> None:
    """Kafka's own features may be: `kafka-features downgrade` sends those of its release."""
    code, message, _ = update(cluster(), "nonsense", 0, 2)
    assert code == InvalidUpdateVersionError.code
    assert str(message).endswith("Invalid update version 0 for feature nonsense. Feature nonsense not found.")
    assert update(cluster(), "share.version", 0, 2)[0] == 0


@pytest.mark.parametrize("name", ["share.version", "streams.version"])
def test_upgrade_to_a_feature_without_an_implementation_is_refused_with_the_remedy(name: str) -> None:
    """`kafka-features upgrade --release-version 4.3` requests this; the tool then upgrades no feature."""
    code, message, after = update(cluster(), name, 1)
    assert code == InvalidUpdateVersionError.code and name not in after.features
    assert f"for feature {name}. Local controller -1 only supports versions 0-0" in str(message)
    assert "Update the other features without this one" in str(message)


def test_eligible_leader_replicas_need_their_metadata() -> None:
    image = cluster(level("metadata.version", 22))
    assert "depends on metadata.version level 23" in str(update(image, "eligible.leader.replicas.version", 1)[1])


def test_group_version_is_downgraded_and_kraft_version_is_not() -> None:
    image = cluster()
    assert "group.version" not in update(image, "group.version", 0, 2)[2].features
    assert "Can't downgrade the version" in str(update(image, "kraft.version", 0, 2)[1])


def test_upgrade_of_kraft_version_is_asked_of_the_quorum() -> None:
    request = UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(feature="kraft.version", max_version_level=1, upgrade_type=1)]
    )
    asked: list[tuple[int, bool]] = []
    outcome = feature_updates.update_features(
        cluster(), request, 0, upgrade_kraft_version=lambda to, dry_run: asked.append((to, dry_run))
    )
    assert outcome.response.error_code == 0 and asked == [(1, False)]
    assert [type(record) for record in outcome.records] == [NoOpRecord]
