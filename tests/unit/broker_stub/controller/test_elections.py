from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.broker_stub.clusters import broker, cluster, replayed, topic
from triokafka.broker_stub.controller.broker_failover import broker_fenced, broker_unfenced
from triokafka.broker_stub.controller.partition_change import Wanted, partition_change
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.metadata import MetadataImage, PartitionImage
from triokafka.broker_stub.metadata.features import METADATA_VERSION, NO_EPOCH_ON_ISR_SHRINK
from triokafka.protocol.stored.cluster_metadata import (
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
)

TopicConfig = Callable[[str], LogConfig]
WITH_ELR = FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)


def clean(name: str) -> LogConfig:
    return LogConfig()


def after_fencing(image: MetadataImage, broker_id: int, config: TopicConfig = clean) -> PartitionImage:
    return replayed(list(broker_fenced(image, broker_id, config)), image).topics["t"].partitions[0]


def after_unfencing(image: MetadataImage, broker_id: int, config: TopicConfig = clean) -> PartitionImage:
    return replayed(list(broker_unfenced(image, broker_id, config)), image).topics["t"].partitions[0]


def test_first_in_sync_replica_in_assigned_order_takes_over() -> None:
    image = cluster(topic("t", [1, 3, 2], isr=[2, 3, 1]), brokers=(1, 2, 3))
    partition = after_fencing(image, 1)
    assert (partition.leader, partition.isr) == (3, (2, 3))
    assert (partition.leader_epoch, partition.partition_epoch) == (1, 1)


def test_leader_that_stays_in_sync_is_kept_without_a_new_epoch() -> None:
    image = cluster(topic("t", [1, 2, 3], leader=2), brokers=(1, 2, 3))
    partition = after_fencing(image, 3)
    assert (partition.leader, partition.isr, partition.leader_epoch) == (2, (1, 2), 0)
    assert partition.partition_epoch == 1


def test_fenced_last_replica_stays_in_sync_without_a_leader() -> None:
    image = cluster(topic("t", [1, 2], isr=[1]), brokers=(1, 2))
    partition = after_fencing(image, 1)
    assert (partition.leader, partition.isr, partition.leader_epoch) == (-1, (1,), 1)


def test_unclean_leader_is_all_that_is_in_sync() -> None:
    image = cluster(topic("t", [1, 2, 3], isr=[1]), broker(2, fenced=True), brokers=(1, 3))
    partition = after_fencing(image, 1, lambda name: LogConfig(unclean_leader_election_enable=name == "t"))
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (3, (3,), 1)


def test_eligible_leader_leads_an_empty_in_sync_set_and_becomes_its_only_member() -> None:
    """Kafka 4 empties the in-sync set of a stopped cluster (KIP-966)."""
    records = topic("t", [1, 2], isr=[], leader=-1)
    partition = records[-1]
    assert isinstance(partition, PartitionRecord)
    partition.eligible_leader_replicas = [2, 1]
    image = cluster(WITH_ELR, records, broker(2, fenced=True), brokers=(1,))
    after = after_unfencing(image, 2, lambda name: LogConfig(min_insync_replicas=2))
    assert (after.leader, after.isr, after.eligible_leader_replicas) == (1, (1,), (2,))
    assert (after.leader_recovery_state, after.leader_epoch) == (0, 1)


def test_last_member_becomes_an_eligible_leader_where_the_cluster_has_them() -> None:
    """Kafka expects these records in a cluster that it has formatted (KIP-966)."""
    image = cluster(WITH_ELR, topic("t", [1]), brokers=(1,))
    gone = after_fencing(image, 1)
    assert (gone.leader, gone.isr, gone.eligible_leader_replicas, gone.last_known_elr) == (-1, (), (1,), (1,))
    fenced = replayed([*broker_fenced(image, 1, clean), broker(1, fenced=True)], image)
    back = after_unfencing(fenced, 1)
    assert (back.leader, back.isr, back.eligible_leader_replicas, back.last_known_elr) == (1, (1,), (), ())


def test_member_that_leaves_is_eligible_only_while_too_few_are_in_sync() -> None:
    image = cluster(WITH_ELR, topic("t", [1, 2, 3]), brokers=(1, 2, 3))
    assert after_fencing(image, 3).eligible_leader_replicas == ()
    strict = after_fencing(image, 3, lambda name: LogConfig(min_insync_replicas=3))
    assert (strict.isr, strict.eligible_leader_replicas) == ((1, 2), (3,))


def test_fenced_replica_in_sync_is_no_candidate() -> None:
    image = cluster(topic("t", [1, 2, 3]), broker(2, fenced=True), brokers=(1, 3))
    assert after_fencing(image, 1).leader == 3


def test_unfenced_broker_leads_partitions_without_a_leader() -> None:
    image = cluster(topic("t", [1, 2], isr=[1], leader=-1), broker(1, fenced=True), brokers=(2,))
    partition = after_unfencing(image, 1)
    assert (partition.leader, partition.leader_epoch) == (1, 1)


def test_broker_that_comes_but_is_not_in_sync_leads_nothing() -> None:
    image = cluster(topic("t", [1, 2], isr=[2], leader=-1), broker(1, fenced=True), broker(2, fenced=True), brokers=())
    assert list(broker_unfenced(image, 1, clean)) == []


def test_partitions_of_others_are_left_alone() -> None:
    image = cluster(topic("t", [1, 2]), brokers=(1, 2, 3))
    assert list(broker_fenced(image, 3, clean)) == []
    assert list(broker_unfenced(image, 3, clean)) == []


def test_records_have_only_changed_fields() -> None:
    image = cluster(topic("t", [1, 2], isr=[1]), brokers=(1, 2))
    (record,) = broker_fenced(image, 1, clean)
    assert (record.isr, record.leader, record.replicas, record.directories) == (None, -1, None, None)


def test_eligible_leader_is_not_elected_while_a_replica_is_in_sync() -> None:
    """(KIP-966: election order)"""
    records = topic("t", [1, 2, 3], isr=[2, 3], leader=3)
    partition = records[-1]
    assert isinstance(partition, PartitionRecord)
    partition.eligible_leader_replicas = [1]
    image = cluster(WITH_ELR, records, brokers=(1, 2, 3))
    after = after_fencing(image, 3, lambda name: LogConfig(min_insync_replicas=3))
    assert (after.leader, after.isr, after.eligible_leader_replicas) == (2, (2,), (1, 3))


@pytest.mark.parametrize(("level", "epoch"), [(NO_EPOCH_ON_ISR_SHRINK - 1, 1), (NO_EPOCH_ON_ISR_SHRINK, 0)])
def test_smaller_in_sync_set_begins_a_leader_epoch_below_metadata_version_3_6(level: int, epoch: int) -> None:
    version = FeatureLevelRecord(name=METADATA_VERSION, feature_level=level)
    image = cluster(version, topic("t", [1, 2, 3], leader=2), brokers=(1, 2, 3))
    fenced = after_fencing(image, 3)
    assert (fenced.leader, fenced.isr, fenced.leader_epoch, fenced.partition_epoch) == (2, (1, 2), epoch, 1)
    (record,) = broker_fenced(image, 3, clean)
    assert record.leader == (2 if epoch else PartitionChangeRecord().leader)


@pytest.mark.parametrize("level", [NO_EPOCH_ON_ISR_SHRINK - 1, NO_EPOCH_ON_ISR_SHRINK])
def test_larger_in_sync_set_begins_no_leader_epoch(level: int) -> None:
    version = FeatureLevelRecord(name=METADATA_VERSION, feature_level=level)
    image = cluster(version, topic("t", [1, 2, 3], isr=[1, 2]), brokers=(1, 2, 3))
    topic_image, partition = next(iter(image.partitions()))
    record = partition_change(image, topic_image, partition, clean, wanted=Wanted(isr=(1, 2, 3)))
    assert record is not None
    after = replayed([record], image).topics["t"].partitions[0]
    assert (after.isr, after.leader_epoch) == ((1, 2, 3), 0)
