"""Metadata deltas: replaying records on an image, and the resulting changes.

A delta belongs to one image and the records after it. Replay copies only the tables that a record changes.
`MetadataDelta.image` then returns the next image. Subscribers get the delta with the image, to process only the
changes. Replay does not validate changes: the controller did so before it wrote the records.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from triokafka import topic_names
from triokafka.broker_stub.metadata import security_records
from triokafka.broker_stub.metadata.image import (
    EMPTY_CONFIGS,
    BrokerImage,
    ConfigResource,
    EndpointImage,
    MetadataImage,
    PartitionImage,
    QuotaEntity,
    SecurityKey,
    TopicImage,
)
from triokafka.named_tuple import NamedTuple
from triokafka.protocol.configuration import ConfigResourceType
from triokafka.protocol.stored import cluster_metadata as stored
from triokafka.protocol.stored.metadata_record import MetadataRecord
from triokafka.security.acl import AclBinding
from triokafka.structs import TopicPartition


class LocalReplicaChanges(NamedTuple):
    """The changes of a delta to the replicas of one broker.

    ``deleted`` has the replicas that the broker must stop and remove, with their topic ids. ``leaders`` and
    ``followers`` have the replicas that it must lead or follow from now on, with the topic id and the new state. A
    topic that was deleted and created again under the same name is in both, so deletions must come first.
    """

    deleted: Mapping[TopicPartition, uuid.UUID] = MappingProxyType({})
    leaders: Mapping[TopicPartition, tuple[uuid.UUID, PartitionImage]] = MappingProxyType({})
    followers: Mapping[TopicPartition, tuple[uuid.UUID, PartitionImage]] = MappingProxyType({})


class MetadataDelta:
    """The changes that a run of records makes to ``base``."""

    def __init__(self, base: MetadataImage) -> None:
        self.base = base
        self.changed_configs: set[ConfigResource] = set()
        self.changed_brokers: set[int] = set()
        self.features_changed = False
        self.client_quotas_changed = False
        self._image: MetadataImage | None = None
        self._topics: dict[str, TopicImage] | None = None
        self._topics_by_id: dict[uuid.UUID, TopicImage] = {}
        self._colliding: dict[str, tuple[str, ...]] = {}
        self._partitions: dict[uuid.UUID, dict[int, PartitionImage]] = {}
        self._deleted: dict[uuid.UUID, TopicImage] = {}
        self._configs: dict[ConfigResource, Mapping[str, str]] | None = None
        self._brokers: dict[int, BrokerImage] | None = None
        self._controllers: dict[int, stored.RegisterControllerRecord] | None = None
        self._features: dict[str, int] | None = None
        self._client_quotas: dict[QuotaEntity, Mapping[str, float]] | None = None
        self.changed_security: set[SecurityKey] = set()
        self._security: dict[SecurityKey, MetadataRecord] | None = None
        self._acls: dict[AclBinding, uuid.UUID] | None = None
        self._producer_ids = base.producer_ids

    @classmethod
    def from_nothing(cls, image: MetadataImage) -> MetadataDelta:
        """Return the delta from the empty image to ``image``, for a subscriber that starts late."""
        delta = cls(MetadataImage())
        delta.changed_configs = set(image.configs)
        delta.changed_brokers = set(image.brokers)
        delta.features_changed = bool(image.features)
        delta.client_quotas_changed = bool(image.client_quotas)
        delta.changed_security = set(image.security_records)
        delta._partitions = {topic_id: dict(topic.partitions) for topic_id, topic in image.topics_by_id.items()}
        delta._image = image
        return delta

    # Replay

    def replay(self, record: object) -> None:
        """Apply one record. Records of other parts of Kafka, which change nothing here, are ignored.

        Raises `ValueError` for a record that does not fit the state before it: the image is not from this log.
        """
        handler = _REPLAY.get(type(record))
        if handler is not None:
            self._image = None
            handler(self, record)

    def _topic_tables(self) -> dict[str, TopicImage]:
        if self._topics is None:
            self._topics = dict(self.base.topics)
            self._topics_by_id = dict(self.base.topics_by_id)
            self._colliding = dict(self.base.colliding_names)
        return self._topics

    def _partition_table(self, topic_id: uuid.UUID) -> dict[int, PartitionImage]:
        table = self._partitions.get(topic_id)
        if table is None:
            self._topic_tables()
            topic = self._topics_by_id.get(topic_id)
            if topic is None:
                raise ValueError(f"a metadata record names the topic id {topic_id}, which does not exist")
            table = self._partitions[topic_id] = dict(topic.partitions)
        return table

    def _replay_topic(self, record: stored.TopicRecord) -> None:
        topics = self._topic_tables()
        if record.name in topics:
            raise ValueError(f"a metadata record creates the topic {record.name!r}, which exists")
        topic = TopicImage(record.name, record.topic_id, {})
        topics[record.name] = topic
        self._topics_by_id[record.topic_id] = topic
        self._partitions[record.topic_id] = {}
        if topic_names.has_collision_characters(record.name):
            key = topic_names.collision_key(record.name)
            self._colliding[key] = (*self._colliding.get(key, ()), record.name)

    def _replay_remove_topic(self, record: stored.RemoveTopicRecord) -> None:
        topics = self._topic_tables()
        topic = self._topics_by_id.pop(record.topic_id, None)
        if topic is None:
            raise ValueError(f"a metadata record removes the topic id {record.topic_id}, which does not exist")
        del topics[topic.name]
        self._partitions.pop(record.topic_id, None)
        if topic_names.has_collision_characters(topic.name):
            key = topic_names.collision_key(topic.name)
            rest = tuple(name for name in self._colliding.get(key, ()) if name != topic.name)
            if rest:
                self._colliding[key] = rest
            else:
                self._colliding.pop(key, None)
        resource = (int(ConfigResourceType.TOPIC), topic.name)
        if resource in (self._configs if self._configs is not None else self.base.configs):
            self._config_table().pop(resource, None)
            self.changed_configs.add(resource)
        before = self.base.topics_by_id.get(record.topic_id)
        if before is not None:
            self._deleted[record.topic_id] = before

    def _replay_partition(self, record: stored.PartitionRecord) -> None:
        self._partition_table(record.topic_id)[record.partition_id] = PartitionImage(
            partition=record.partition_id,
            replicas=tuple(record.replicas),
            isr=tuple(record.isr),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            directories=tuple(record.directories),
            removing_replicas=tuple(record.removing_replicas),
            adding_replicas=tuple(record.adding_replicas),
            leader_recovery_state=record.leader_recovery_state,
            eligible_leader_replicas=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
        )

    def _replay_partition_change(self, record: stored.PartitionChangeRecord) -> None:
        table = self._partition_table(record.topic_id)
        before = table.get(record.partition_id)
        if before is None:
            raise ValueError(
                f"a metadata record changes partition {record.partition_id} of {record.topic_id}, which does not exist"
            )
        table[record.partition_id] = before.after(record)

    def _replay_clear_elr(self, record: stored.ClearElrRecord) -> None:
        for topic in list(self._topic_tables().values()):
            if record.topic_name in ("", topic.name):
                table = self._partition_table(topic.topic_id)
                for number, partition in table.items():
                    if partition.eligible_leader_replicas or partition.last_known_elr:
                        # As any change of the partition, a new partition epoch.
                        cleared = stored.PartitionChangeRecord(eligible_leader_replicas=[], last_known_elr=[])
                        table[number] = partition.after(cleared)

    def _config_table(self) -> dict[ConfigResource, Mapping[str, str]]:
        if self._configs is None:
            self._configs = dict(self.base.configs)
        return self._configs

    def _replay_config(self, record: stored.ConfigRecord) -> None:
        configs = self._config_table()
        resource = (record.resource_type, record.resource_name)
        values = dict(configs.get(resource, EMPTY_CONFIGS))
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if values:
            configs[resource] = values
        else:
            configs.pop(resource, None)
        self.changed_configs.add(resource)

    def _broker_table(self) -> dict[int, BrokerImage]:
        if self._brokers is None:
            self._brokers = dict(self.base.brokers)
        return self._brokers

    def _replay_register_broker(self, record: stored.RegisterBrokerRecord) -> None:
        self._broker_table()[record.broker_id] = BrokerImage(
            broker_id=record.broker_id,
            broker_epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=tuple(EndpointImage(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
            features={f.name: (f.min_supported_version, f.max_supported_version) for f in record.features},
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            directories=tuple(record.log_dirs),
            cordoned_directories=None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
        )
        self.changed_brokers.add(record.broker_id)

    def _change_broker(self, broker_id: int, broker_epoch: int, **changes: Any) -> None:
        brokers = self._broker_table()
        before = brokers.get(broker_id)
        if before is None or before.broker_epoch != broker_epoch:
            raise ValueError(
                f"a metadata record changes broker {broker_id} of epoch {broker_epoch}, which is not registered"
            )
        brokers[broker_id] = before._replace(**changes)
        self.changed_brokers.add(broker_id)

    def _replay_broker_change(self, record: stored.BrokerRegistrationChangeRecord) -> None:
        changes: dict[str, Any] = {}
        if record.fenced:
            changes["fenced"] = record.fenced > 0
        if record.in_controlled_shutdown:
            changes["in_controlled_shutdown"] = record.in_controlled_shutdown > 0
        if record.log_dirs:
            changes["directories"] = tuple(record.log_dirs)
        if record.cordoned_log_dirs is not None:
            changes["cordoned_directories"] = tuple(record.cordoned_log_dirs)
        self._change_broker(record.broker_id, record.broker_epoch, **changes)

    def _replay_fence_broker(self, record: stored.FenceBrokerRecord) -> None:
        self._change_broker(record.id, record.epoch, fenced=True)

    def _replay_unfence_broker(self, record: stored.UnfenceBrokerRecord) -> None:
        self._change_broker(record.id, record.epoch, fenced=False)

    def _replay_unregister_broker(self, record: stored.UnregisterBrokerRecord) -> None:
        self._broker_table().pop(record.broker_id, None)
        self.changed_brokers.add(record.broker_id)

    def _replay_register_controller(self, record: stored.RegisterControllerRecord) -> None:
        if self._controllers is None:
            self._controllers = dict(self.base.controllers)
        self._controllers[record.controller_id] = record

    def _replay_feature_level(self, record: stored.FeatureLevelRecord) -> None:
        if self._features is None:
            self._features = dict(self.base.features)
        if record.feature_level == 0:
            self._features.pop(record.name, None)
        else:
            self._features[record.name] = record.feature_level
        self.features_changed = True

    def _replay_producer_ids(self, record: stored.ProducerIdsRecord) -> None:
        self._producer_ids = record.next_producer_id

    def _replay_client_quota(self, record: stored.ClientQuotaRecord) -> None:
        if self._client_quotas is None:
            self._client_quotas = dict(self.base.client_quotas)
        entity = tuple(sorted((part.entity_type, part.entity_name) for part in record.entity))
        values = dict(self._client_quotas.get(entity, {}))
        if record.remove:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        if values:
            self._client_quotas[entity] = values
        else:
            self._client_quotas.pop(entity, None)
        self.client_quotas_changed = True

    def _security_table(self) -> dict[SecurityKey, MetadataRecord]:
        if self._security is None:
            self._security = dict(self.base.security_records)
        return self._security

    def _acl_table(self) -> dict[AclBinding, uuid.UUID]:
        if self._acls is None:
            self._acls = dict(self.base.acls)
        return self._acls

    def _replay_security(self, record: MetadataRecord) -> None:
        key = security_records.key_of(record)
        self._replay_security_removal(record)
        self._security_table()[key] = record
        if isinstance(record, stored.AccessControlEntryRecord):
            self._acl_table()[security_records.acl_of(record)] = record.id

    def _replay_security_removal(self, record: MetadataRecord) -> None:
        key = security_records.key_of(record)
        before = self._security_table().pop(key, None)
        self.changed_security.add(key)
        if isinstance(before, stored.AccessControlEntryRecord):
            acl = security_records.acl_of(before)
            if self._acl_table().get(acl) == before.id:
                del self._acl_table()[acl]

    # Result

    def image(self, offset: int, epoch: int) -> MetadataImage:
        """Return the next image, which includes the record at ``offset``. The delta accepts no further records."""
        base = self.base
        topics: Mapping[str, TopicImage] = base.topics
        topics_by_id: Mapping[uuid.UUID, TopicImage] = base.topics_by_id
        colliding: Mapping[str, tuple[str, ...]] = base.colliding_names
        if self._topics is not None:
            for topic_id, partitions in self._partitions.items():
                topic = self._topics_by_id[topic_id]._replace(partitions=partitions)
                self._topics_by_id[topic_id] = topic
                self._topics[topic.name] = topic
            topics, topics_by_id, colliding = self._topics, self._topics_by_id, self._colliding
        self._image = MetadataImage(
            offset=offset,
            epoch=epoch,
            topics=topics,
            topics_by_id=topics_by_id,
            configs=base.configs if self._configs is None else self._configs,
            brokers=base.brokers if self._brokers is None else self._brokers,
            controllers=base.controllers if self._controllers is None else self._controllers,
            features=base.features if self._features is None else self._features,
            producer_ids=self._producer_ids,
            client_quotas=base.client_quotas if self._client_quotas is None else self._client_quotas,
            security_records=base.security_records if self._security is None else self._security,
            acls=base.acls if self._acls is None else self._acls,
            colliding_names=colliding,
        )
        return self._image

    # What changed

    @property
    def deleted_topics(self) -> Mapping[uuid.UUID, TopicImage]:
        """Deleted topics, with their state in ``base``."""
        return self._deleted

    def changed_partitions(self) -> Iterator[tuple[TopicImage, PartitionImage | None, PartitionImage]]:
        """Yield new and changed partitions as topic, old state (None if new) and new state."""
        image = self._image
        if image is None:
            raise RuntimeError("call image() before reading the changes of a delta")
        for topic_id in self._partitions:
            topic = image.topics_by_id[topic_id]
            before = self.base.topics_by_id.get(topic_id)
            for number, now in topic.partitions.items():
                was = before.partitions.get(number) if before else None
                if was is not now:
                    yield topic, was, now

    def local_changes(self, broker_id: int) -> LocalReplicaChanges:
        """Return the replicas that broker ``broker_id`` must delete, lead and follow because of this delta."""
        deleted: dict[TopicPartition, uuid.UUID] = {}
        leaders: dict[TopicPartition, tuple[uuid.UUID, PartitionImage]] = {}
        followers: dict[TopicPartition, tuple[uuid.UUID, PartitionImage]] = {}
        for topic_id, topic in self._deleted.items():
            for number, partition in topic.partitions.items():
                if broker_id in partition.replicas:
                    deleted[TopicPartition(topic.name, number)] = topic_id
        for topic, before, now in self.changed_partitions():
            name = TopicPartition(topic.name, now.partition)
            if broker_id not in now.replicas:
                if before is not None and broker_id in before.replicas:
                    deleted[name] = topic.topic_id
            elif now.leader == broker_id:
                leaders[name] = (topic.topic_id, now)
            else:
                followers[name] = (topic.topic_id, now)
        return LocalReplicaChanges(deleted, leaders, followers)


_REPLAY: Final[dict[type, Callable[[MetadataDelta, Any], None]]] = {
    stored.TopicRecord: MetadataDelta._replay_topic,
    stored.RemoveTopicRecord: MetadataDelta._replay_remove_topic,
    stored.PartitionRecord: MetadataDelta._replay_partition,
    stored.PartitionChangeRecord: MetadataDelta._replay_partition_change,
    stored.ClearElrRecord: MetadataDelta._replay_clear_elr,
    stored.ConfigRecord: MetadataDelta._replay_config,
    stored.RegisterBrokerRecord: MetadataDelta._replay_register_broker,
    stored.BrokerRegistrationChangeRecord: MetadataDelta._replay_broker_change,
    stored.FenceBrokerRecord: MetadataDelta._replay_fence_broker,
    stored.UnfenceBrokerRecord: MetadataDelta._replay_unfence_broker,
    stored.UnregisterBrokerRecord: MetadataDelta._replay_unregister_broker,
    stored.RegisterControllerRecord: MetadataDelta._replay_register_controller,
    stored.FeatureLevelRecord: MetadataDelta._replay_feature_level,
    stored.ProducerIdsRecord: MetadataDelta._replay_producer_ids,
    stored.ClientQuotaRecord: MetadataDelta._replay_client_quota,
    **dict.fromkeys(security_records.ADDED, MetadataDelta._replay_security),
    **dict.fromkeys(security_records.REMOVED, MetadataDelta._replay_security_removal),
}
