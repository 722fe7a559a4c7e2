from __future__ import annotations

import uuid
from collections.abc import Sequence

import pytest

from tests.support.log_replay import replayed_batches
from tests.unit.broker_stub.clusters import broker, cluster, replayed, topic
from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.broker_stub.metadata.records import LogBatch
from triokafka.protocol.stored.cluster_metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    EndTransactionRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from triokafka.protocol.stored.metadata_record import MetadataRecord
from triokafka.structs import TopicPartition

ID = uuid.UUID(int=7)


def batch(offset: int, *records: MetadataRecord, epoch: int = 1, kraft_version: int | None = None) -> LogBatch:
    return LogBatch(offset, offset + max(len(records), 1) - 1, epoch, records, kraft_version)


def replay(*batches: LogBatch) -> MetadataImage:
    return replayed_batches(batches)[0]


def name(text: str, number: int) -> TopicRecord:
    return TopicRecord(name=text, topic_id=uuid.UUID(int=number))


class TestCompleteTransactions:
    def test_image_ends_at_the_last_batch_also_when_it_changes_nothing(self) -> None:
        image = replay(batch(0, kraft_version=1), batch(1, name("t", 7)), batch(2, NoOpRecord(), epoch=4))
        assert (image.offset, image.epoch, set(image.topics)) == (2, 4, {"t"})

    def test_transaction_counts_from_its_end(self) -> None:
        whole = replay(
            batch(0, BeginTransactionRecord(name="x"), name("t", 7)),
            batch(2, name("u", 8)),
            batch(3, EndTransactionRecord()),
        )
        assert set(whole.topics) == {"t", "u"}
        open_ = replay(batch(0, name("t", 7)), batch(1, BeginTransactionRecord(), name("u", 8)))
        assert set(open_.topics) == {"t"} and open_.offset == 2

    def test_aborted_transaction_never_happened(self) -> None:
        result = replay(batch(0, BeginTransactionRecord(), name("t", 7), AbortTransactionRecord(), name("u", 8)))
        assert set(result.topics) == {"u"}

    def test_records_without_a_meaning_here_are_skipped(self) -> None:
        result = replay(batch(0, RegisterControllerRecord(), ClearElrRecord(topic_name="t"), name("t", 7)))
        assert set(result.topics) == {"t"}

    @pytest.mark.parametrize(
        "records",
        [
            [RemoveTopicRecord(topic_id=ID)],
            [PartitionChangeRecord(topic_id=ID, partition_id=0)],
            [name("t", 7), PartitionChangeRecord(topic_id=ID, partition_id=0)],
            [name("t", 7), name("t", 8)],
            [FenceBrokerRecord(id=1, epoch=5)],
            [broker(1), UnfenceBrokerRecord(id=1, epoch=5)],
        ],
    )
    def test_records_that_contradict_the_image_are_refused(self, records: Sequence[MetadataRecord]) -> None:
        with pytest.raises(ValueError, match="metadata record"):
            replay(batch(0, *records))


class TestDelta:
    def test_base_image_stays_as_it_was(self) -> None:
        base = cluster(topic("t", [1], configs={"retention.ms": "5"}))
        before = (dict(base.topics), dict(base.configs), dict(base.brokers), dict(base.topics["t"].partitions))
        replayed(
            [
                PartitionChangeRecord(topic_id=ID, partition_id=0, leader=-1),
                ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="6"),
                broker(2),
                RemoveTopicRecord(topic_id=ID),
            ],
            base,
        )
        after = (dict(base.topics), dict(base.configs), dict(base.brokers), dict(base.topics["t"].partitions))
        assert before == after

    def test_unchanged_parts_are_shared_with_the_previous_image(self) -> None:
        base = cluster(topic("t", [1]), topic("u", [1], number=8))
        after = replayed([PartitionChangeRecord(topic_id=ID, partition_id=0, leader=-1)], base)
        assert after.topics["u"] is base.topics["u"]
        assert after.configs is base.configs and after.brokers is base.brokers
        assert after.topics["t"] is not base.topics["t"]

    def test_local_changes_list_replicas_to_stop_lead_and_follow(self) -> None:
        base = cluster(topic("gone", [1], [2]), topic("moved", [1, 2], number=8), brokers=(1, 2, 3))
        delta = MetadataDelta(base)
        delta.replay(RemoveTopicRecord(topic_id=ID))
        for record in topic("new", [1, 2], [2, 1], [2], number=9):
            delta.replay(record)
        delta.replay(PartitionChangeRecord(topic_id=uuid.UUID(int=8), partition_id=0, replicas=[2], leader=2))
        delta.image(99, 1)
        local = delta.local_changes(1)
        assert local.deleted == {TopicPartition("gone", 0): ID, TopicPartition("moved", 0): uuid.UUID(int=8)}
        assert set(local.leaders) == {TopicPartition("new", 0)}
        assert set(local.followers) == {TopicPartition("new", 1)}
        assert local.leaders[TopicPartition("new", 0)][0] == uuid.UUID(int=9)

    def test_recreated_topic_is_deleted_and_led(self) -> None:
        delta = MetadataDelta(cluster(topic("t", [1])))
        for record in (RemoveTopicRecord(topic_id=ID), *topic("t", [1], number=8)):
            delta.replay(record)
        delta.image(99, 1)
        local = delta.local_changes(1)
        assert local.deleted == {TopicPartition("t", 0): ID}
        assert local.leaders[TopicPartition("t", 0)][0] == uuid.UUID(int=8)

    def test_topic_that_came_and_went_is_no_change(self) -> None:
        delta = MetadataDelta(cluster())
        for record in (*topic("t", [1]), RemoveTopicRecord(topic_id=ID)):
            delta.replay(record)
        delta.image(99, 1)
        assert delta.local_changes(1).leaders == {} and delta.local_changes(1).deleted == {}
        assert not list(delta.changed_partitions())

    def test_unchanged_partitions_of_a_changed_topic_are_not_reported(self) -> None:
        delta = MetadataDelta(cluster(topic("t", [1], [1], [1])))
        delta.replay(PartitionChangeRecord(topic_id=ID, partition_id=1, leader=1))
        delta.image(99, 1)
        assert [now.partition for _, _, now in delta.changed_partitions()] == [1]

    def test_delta_from_nothing_leads_to_the_image(self) -> None:
        image = cluster(topic("t", [1], [1], configs={"retention.ms": "5"}))
        delta = MetadataDelta.from_nothing(image)
        assert set(delta.local_changes(1).leaders) == {TopicPartition("t", 0), TopicPartition("t", 1)}
        assert delta.changed_configs == {(2, "t")} and delta.changed_brokers == {1}

    def test_brokers_are_fenced_and_unfenced_by_the_records_of_older_versions_too(self) -> None:
        image = replayed([FenceBrokerRecord(id=1, epoch=101)], cluster())
        assert image.brokers[1].fenced
        assert not replayed([UnfenceBrokerRecord(id=1, epoch=101)], image).brokers[1].fenced

    def test_directories_of_a_broker_can_change(self) -> None:
        change = BrokerRegistrationChangeRecord(
            broker_id=1, broker_epoch=101, log_dirs=[uuid.UUID(int=5)], cordoned_log_dirs=[]
        )
        image = replayed([change], cluster())
        assert image.brokers[1].directories == (uuid.UUID(int=5),)
        assert image.brokers[1].cordoned_directories == ()

    def test_brokers_go_when_they_are_unregistered(self) -> None:
        image = replayed([UnregisterBrokerRecord(broker_id=1, broker_epoch=101)], cluster())
        assert not image.brokers
