"""The loader of the committed image: batches, transactions, snapshots, and changes of the active controller."""

from __future__ import annotations

import random  # drives which records follow each other
import uuid
from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.in_steps import done
from tests.support.log_replay import replayed_batches
from tests.unit.broker_stub.clusters import cluster, topic
from tests.unit.broker_stub.metadata.test_snapshots import full_image
from triokafka.broker_stub.metadata import MetadataImage, loader
from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.image import EMPTY_IMAGE
from triokafka.broker_stub.metadata.image_difference import difference_steps
from triokafka.broker_stub.metadata.loader import PORTION, MetadataLoader
from triokafka.broker_stub.metadata.publisher import MetadataPublisher
from triokafka.broker_stub.metadata.records import LogBatch
from triokafka.broker_stub.metadata.security_records import acl_record
from triokafka.broker_stub.metadata.snapshots import SnapshotId, image_records
from triokafka.protocol.stored.cluster_metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ClientQuotaEntityData,
    ClientQuotaRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    UnregisterBrokerRecord,
)
from triokafka.protocol.stored.metadata_record import MetadataRecord
from triokafka.security.acl import AclBinding, AclOperation, AclPatternType, AclPermissionType, ResourceType

ACL = AclBinding(
    ResourceType.TOPIC, "t", AclPatternType.LITERAL, "User:a", "*", AclOperation.READ, AclPermissionType.ALLOW
)
CONTENT = [name for name in MetadataImage._fields if name not in ("offset", "epoch")]


def content(image: MetadataImage) -> list[object]:
    """The image without its log position, and with colliding names in any order."""
    colliding = {key: sorted(names) for key, names in image.colliding_names.items()}
    return [getattr(image, name) for name in CONTENT if name != "colliding_names"] + [colliding]


class Log:
    """A committed log in memory."""

    def __init__(self) -> None:
        self.batches: list[LogBatch] = []
        self.epoch = 1

    @property
    def end_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0

    def append(self, *records: MetadataRecord, kraft_version: int | None = None) -> LogBatch:
        """Append a batch; without records it is a control batch."""
        base, count = self.end_offset, max(1, len(records))
        batch = LogBatch(base, base + count - 1, self.epoch, records, kraft_version, timestamp_ms=1_000 + base)
        self.batches.append(batch)
        return batch

    def read_committed(self, from_offset: int) -> Iterator[LogBatch]:
        return iter([batch for batch in self.batches if batch.last_offset >= from_offset])

    def replayed(self, end_offset: int) -> MetadataImage:
        """The image before ``end_offset``, replayed from an empty one."""
        return replayed_batches(batch for batch in self.batches if batch.last_offset < end_offset)[0]


class Node:
    """A loader whose published changes are checked against each other."""

    def __init__(self) -> None:
        publisher = MetadataPublisher()
        self.loader = MetadataLoader(publisher)
        self.published: list[MetadataImage] = []
        publisher.subscribe(self._published)

    def _published(self, delta: MetadataDelta, image: MetadataImage) -> None:
        before = self.published[-1] if self.published else EMPTY_IMAGE
        assert image.offset >= before.offset
        assert set(delta.deleted_topics) >= set(before.topics_by_id) - set(image.topics_by_id)
        changed = {(found.topic_id, now.partition) for found, _, now in delta.changed_partitions()}
        for found, partition in image.partitions():
            old = before.topics_by_id.get(found.topic_id)
            differs = old is None or old.partitions.get(partition.partition) != partition
            assert not differs or (found.topic_id, partition.partition) in changed
        for resource in {*before.configs, *image.configs}:
            assert before.configs.get(resource) == image.configs.get(resource) or resource in delta.changed_configs
        for broker_id in {*before.brokers, *image.brokers}:
            assert before.brokers.get(broker_id) == image.brokers.get(broker_id) or broker_id in delta.changed_brokers
        self.published.append(image)

    def catch_up(self, log: Log) -> None:
        while (change := done(self.loader.next_change(log.read_committed))) is not None:
            self.loader.publish(change.delta, change.image)

    def load(self, image: MetadataImage) -> None:
        batches = [LogBatch(0, 0, image.epoch, list(image_records(image)), 1)]  # type: ignore[arg-type]
        change = done(self.loader.load_snapshot(batches, SnapshotId(image.offset + 1, image.epoch)))
        if change is not None:
            self.loader.publish(change.delta, change.image)


def config(name: str) -> MetadataRecord:
    return ConfigRecord(resource_type=2, resource_name=name, name="retention.ms", value="1000")


def created(number: int, name: str = "t") -> list[MetadataRecord]:
    return topic(name, [1], [1, 2], number=number)  # type: ignore[return-value]


def test_committed_records_are_published_once() -> None:
    log, node = Log(), Node()
    log.append(*created(1))
    node.catch_up(log)
    node.catch_up(log)
    assert [set(image.topics) for image in node.published] == [{"t"}]
    assert (node.loader.image.offset, node.loader.next_offset) == (2, 3)


def test_log_that_is_far_ahead_is_published_in_small_changes() -> None:
    """Subscribers apply a change in one step of the event loop, and other clients wait meanwhile."""
    log, node = Log(), Node()
    for number in range(100):
        log.append(*(config(f"t{number}-{i}") for i in range(100)))
    sizes = []
    while (change := done(node.loader.next_change(log.read_committed))) is not None:
        sizes.append(len(change.delta.changed_configs))
        node.loader.publish(change.delta, change.image)
    assert sum(sizes) == 10_000
    assert max(sizes) <= 2_100
    assert content(node.loader.image) == content(log.replayed(log.end_offset))


def test_large_batch_is_replayed_in_steps_and_published_whole() -> None:
    log, node = Log(), Node()
    log.append(*(config(f"t{number}") for number in range(5_000)))
    portions = []
    for portion in node.loader.next_change(log.read_committed):
        portions.append(portion)
        if len(portions) == 10:
            break  # the next call goes on
    change = node.loader.next_change(log.read_committed)
    portions += list(change)
    assert max(portions) <= 100
    assert sum(portions) == 5_000
    node.catch_up(log)
    assert len(node.published) == 1
    assert content(node.loader.image) == content(log.replayed(log.end_offset))


def test_time_of_the_last_published_record_is_known() -> None:
    log, node = Log(), Node()
    assert node.loader.applied_ms == -1
    log.append(*created(1))
    log.append(*created(2, "u"))
    change = done(node.loader.next_change(log.read_committed))
    assert change is not None
    assert node.loader.applied_ms == -1
    node.loader.publish(change.delta, change.image)
    assert node.loader.applied_ms == 1_003
    image = node.loader.image
    other = Node()
    other.load(image)
    assert other.loader.snapshots == 1


def test_failing_subscribers_are_counted_and_others_receive_the_change() -> None:
    def fail(delta: MetadataDelta, image: MetadataImage) -> None:
        raise ValueError("a subscriber's bug")

    publisher, heard = MetadataPublisher(), list[int]()
    publisher.subscribe(fail)
    publisher.subscribe(lambda delta, image: heard.append(image.offset))
    publisher.publish(MetadataDelta(EMPTY_IMAGE), cluster())
    publisher.publish(MetadataDelta(EMPTY_IMAGE), cluster())
    assert publisher.failures == 2
    assert len(heard) == 2


def test_control_records_move_the_offset_alone() -> None:
    log, node = Log(), Node()
    log.append(*created(1))
    node.catch_up(log)
    log.epoch = 4
    log.append(kraft_version=1)
    node.catch_up(log)
    assert (node.loader.image.offset, node.loader.image.epoch, node.loader.kraft_version) == (3, 4, 1)
    assert node.loader.image.topics is node.published[0].topics


def test_unfinished_transaction_is_held_back() -> None:
    log, node = Log(), Node()
    log.append(*created(1, "before"))
    log.append(BeginTransactionRecord(name="x"), *created(2, "held"))
    log.append()
    node.catch_up(log)
    assert set(node.loader.image.topics) == {"before"} and node.loader.image.offset == 2
    assert node.loader.in_transaction and node.loader.next_offset == log.end_offset
    log.append(EndTransactionRecord(), *created(3, "after"))
    node.catch_up(log)
    assert set(node.loader.image.topics) == {"before", "held", "after"} and not node.loader.in_transaction
    assert node.loader.image.offset == log.end_offset - 1


def test_aborted_transaction_has_no_effect() -> None:
    log, node = Log(), Node()
    log.append(BeginTransactionRecord(name="x"), *created(2, "held"))
    node.catch_up(log)
    assert node.published == []
    log.append(AbortTransactionRecord(reason="x"))
    node.catch_up(log)
    assert not node.loader.image.topics and node.loader.image.offset == log.end_offset - 1


def test_snapshot_is_a_change_from_the_present_image() -> None:
    log, node = Log(), Node()
    log.append(*created(1, "old"), *created(2, "same"))
    node.catch_up(log)
    same = node.loader.image.topics["same"]
    deltas: list[MetadataDelta] = []
    node.loader._publisher.subscribe(lambda delta, image: deltas.append(delta))
    after = cluster(created(2, "same"), created(3, "old"))._replace(offset=99, epoch=7)
    node.load(after)
    assert content(node.loader.image) == content(after)
    assert (node.loader.image.offset, node.loader.image.epoch, node.loader.next_offset) == (99, 7, 100)
    assert {found.name for found in deltas[-1].deleted_topics.values()} == {"old"}
    assert node.loader.image.topics["same"] is same
    assert {found.name for found, _, _ in deltas[-1].changed_partitions()} == {"old"}


def test_snapshot_that_equals_a_large_image_is_compared_in_steps() -> None:
    log, node = Log(), Node()
    acls = [acl_record(uuid.UUID(int=number), ACL._replace(resource_name=f"t{number}")) for number in range(3_000)]
    log.append(*acls)
    node.catch_up(log)
    batches = [LogBatch(0, 0, 7, [*acls, *created(1)], 1)]
    steps = node.loader.load_snapshot(batches, SnapshotId(5_000, 7))
    replayed = 3_000 // PORTION + 1
    assert len(list(islice(steps, replayed))) == replayed
    compared = list(steps)
    assert sum(compared) >= 3_000 / 20


def test_older_snapshot_changes_nothing() -> None:
    log, node = Log(), Node()
    log.append(*created(1))
    node.catch_up(log)
    node.load(cluster()._replace(offset=1))
    assert set(node.loader.image.topics) == {"t"} and len(node.published) == 1


def test_change_of_the_active_controller_is_not_replayed_again() -> None:
    log, node = Log(), Node()
    batch = log.append(*created(1))
    delta = MetadataDelta(node.loader.image)
    for record in batch.records:
        delta.replay(record)
    node.loader.publish(delta, delta.image(2, 1))
    log.append(*created(2, "next"))
    node.catch_up(log)
    assert [set(image.topics) for image in node.published] == [{"t"}, {"t", "next"}]


def test_removed_topics_are_collected_until_the_logs_are_loaded() -> None:
    log, node = Log(), Node()
    log.append(*created(1))
    log.append(RemoveTopicRecord(topic_id=uuid.UUID(int=1)))
    node.catch_up(log)
    assert node.loader.removed_topics == {uuid.UUID(int=1)}
    node.loader.forget_removed_topics()
    log.append(*created(2), RemoveTopicRecord(topic_id=uuid.UUID(int=2)))
    node.catch_up(log)
    assert node.loader.removed_topics is None


def test_difference_of_any_two_images_leads_from_one_to_the_other() -> None:
    images = [EMPTY_IMAGE, full_image(), cluster(topic("a.b", [3], number=9, configs={"cleanup.policy": "compact"}))]
    for before in images:
        for after in images:
            delta = MetadataDelta(before)
            for record in filter(None, difference_steps(before, after)):
                delta.replay(record)
            found = content(delta.image(0, 0)._replace(controllers=after.controllers))  # these are never unregistered
            assert found == content(after)
    assert not list(filter(None, difference_steps(images[1], images[1])))


class Writer:
    """Writes random records that fit the records before them."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._number = 0

    def records(self, image: MetadataImage) -> list[MetadataRecord]:
        delta = MetadataDelta(image)
        records: list[MetadataRecord] = []
        for _ in range(self._rng.randint(1, 4)):
            for record in self._change(delta.image(0, 0)):
                records.append(record)
                delta = MetadataDelta(delta.image(0, 0))
                delta.replay(record)
        return records

    def _change(self, image: MetadataImage) -> list[MetadataRecord]:
        rng = self._rng
        topics = sorted(image.topics)
        match rng.randrange(10):
            case 0 | 1 | 2:
                self._number += 1
                free = [name for name in ("a", "a.b", "a_b", "c", "d") if name not in image.topics]
                return created(self._number, rng.choice(free)) if free else []
            case 3 if topics:
                return [RemoveTopicRecord(topic_id=image.topics[rng.choice(topics)].topic_id)]
            case 4 if topics:
                return [
                    PartitionChangeRecord(
                        partition_id=0,
                        topic_id=image.topics[rng.choice(topics)].topic_id,
                        isr=[rng.randint(1, 3)],
                        leader=rng.randint(1, 3),
                    )
                ]
            case 5 if topics:
                found = image.topics[rng.choice(topics)]
                return [
                    PartitionRecord(partition_id=len(found.partitions), topic_id=found.topic_id, replicas=[1], isr=[1])
                ]
            case 6:
                name = rng.choice([*topics, "1"])
                value = rng.choice(["1", "2", None])
                kind = 4 if name == "1" else 2
                return [ConfigRecord(resource_type=kind, resource_name=name, name="retention.ms", value=value)]
            case 7:
                broker_id = rng.randint(1, 3)
                if broker_id in image.brokers and rng.random() < 0.5:
                    return [UnregisterBrokerRecord(broker_id=broker_id)]
                return [RegisterBrokerRecord(broker_id=broker_id, broker_epoch=rng.randrange(9), fenced=False)]
            case 8:
                entity = [ClientQuotaEntityData(entity_type="user", entity_name=rng.choice(["x", None]))]
                remove = rng.random() < 0.3
                return [ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=5.0, remove=remove)]
            case _:
                if rng.random() < 0.5:
                    return [ProducerIdsRecord(next_producer_id=image.producer_ids + 1000)]
                return [FeatureLevelRecord(name="group.version", feature_level=rng.randint(0, 1))]


STEPS = st.lists(
    st.sampled_from(["append", "control", "begin", "end", "abort", "follow", "pause", "snapshot", "epoch", "lead"]),
    max_size=40,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 1 << 30), steps=STEPS, portion=st.sampled_from([1, 2, 50]))
def test_image_equals_the_replay_from_scratch(seed: int, steps: list[str], portion: int) -> None:
    """Random batches, transactions, snapshots and terms as the leader; a second node loads the log of the first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loader, "PORTION", portion)  # so that pauses come within batches, too
        _follow(seed, steps)


def _follow(seed: int, steps: list[str]) -> None:
    log, node, writer = Log(), Node(), Writer(seed)
    written = EMPTY_IMAGE
    open_since: MetadataImage | None = None
    for step in steps:
        match step:
            case "append":
                log.append(*writer.records(written))
                written = _after(written, log.batches[-1])
            case "control":
                log.append(kraft_version=1)
            case "epoch":
                log.epoch += 1
                log.append()
            case "begin" if open_since is None:
                open_since = written
                log.append(BeginTransactionRecord(name="x"))
            case "end" if open_since is not None:
                open_since = None
                log.append(EndTransactionRecord())
            case "abort" if open_since is not None:
                written, open_since = open_since, None
                log.append(AbortTransactionRecord(reason="x"))
            case "follow":
                node.catch_up(log)
                if open_since is None:
                    assert node.loader.image.offset == log.end_offset - 1
            case "pause":
                for _ in node.loader.next_change(log.read_committed):
                    break  # goes on with the next call
            case "snapshot":
                other = Node()
                other.catch_up(log)
                image = other.loader.image
                if image.offset >= 0:
                    node.load(image)
                    assert node.loader.image.offset >= image.offset
            case "lead" if open_since is None:
                node.catch_up(log)
                batch = log.append(*writer.records(written))
                delta = MetadataDelta(node.loader.image)
                for record in batch.records:
                    delta.replay(record)
                written = _after(written, batch)
                if batch.records:
                    node.loader.publish(delta, delta.image(batch.last_offset, log.epoch))
        image = node.loader.image
        scratch = log.replayed(image.offset + 1)
        assert content(image) == content(scratch)
        assert (image.offset, image.epoch) == (scratch.offset, scratch.epoch)


def _after(image: MetadataImage, batch: LogBatch) -> MetadataImage:
    delta = MetadataDelta(image)
    for record in batch.records:
        delta.replay(record)
    return delta.image(batch.last_offset, 1)
