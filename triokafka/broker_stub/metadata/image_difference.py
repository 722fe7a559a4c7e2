"""The difference between two images as metadata records, so that a snapshot is published as a change like any other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from triokafka.broker_stub.metadata.image import EMPTY_CONFIGS, MetadataImage
from triokafka.broker_stub.metadata.security_records import removal_of
from triokafka.broker_stub.metadata.snapshots import partition_record, quota_record, registration_record
from triokafka.protocol.configuration import ConfigResourceType
from triokafka.protocol.message import Struct
from triokafka.protocol.stored import cluster_metadata as stored

K = TypeVar("K")


def difference_steps(before: MetadataImage, after: MetadataImage) -> Iterator[Struct | None]:
    """Yield the records whose replay on ``before`` leads to ``after``, apart from offset and epoch.

    None stands for each of the equal entries, which may be very many. A topic that was deleted and created again is
    removed first.
    """
    for name in _keys_of(before.features, after.features):
        level = after.features.get(name, 0)
        if before.features.get(name, 0) != level:
            yield stored.FeatureLevelRecord(name=name, feature_level=level)
    for broker in before.brokers.values():
        if broker.broker_id not in after.brokers:
            yield stored.UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch)
    for broker in after.brokers.values():
        if before.brokers.get(broker.broker_id) != broker:
            yield registration_record(broker)
    for controller_id, registration in after.controllers.items():
        if before.controllers.get(controller_id) != registration:
            yield registration
    yield from _topics(before, after)
    yield from _configs(before, after)
    for entity in _keys_of(before.client_quotas, after.client_quotas):
        yield None
        old, new = before.client_quotas.get(entity, {}), after.client_quotas.get(entity, {})
        for key in _keys_of(old, new):
            if old.get(key) != new.get(key):
                yield quota_record(entity, key, new.get(key))
    if before.producer_ids != after.producer_ids:
        yield stored.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=after.producer_ids)
    for entry in _keys_of(before.security_records, after.security_records):
        record = after.security_records.get(entry)
        if record is None:
            yield removal_of(entry)
        else:
            yield None if before.security_records.get(entry) == record else record


def _topics(before: MetadataImage, after: MetadataImage) -> Iterator[Struct | None]:
    for topic_id in before.topics_by_id:
        yield None if topic_id in after.topics_by_id else stored.RemoveTopicRecord(topic_id=topic_id)
    for topic in after.topics.values():
        old = before.topics_by_id.get(topic.topic_id)
        if old is None:
            yield stored.TopicRecord(name=topic.name, topic_id=topic.topic_id)
        known = {} if old is None else old.partitions
        for number, partition in topic.partitions.items():
            equal = known.get(number) == partition
            yield None if equal else partition_record(topic.topic_id, partition)


def _configs(before: MetadataImage, after: MetadataImage) -> Iterator[Struct | None]:
    for resource in _keys_of(before.configs, after.configs):
        yield None
        resource_type, resource_name = resource
        old, new = before.configs.get(resource, EMPTY_CONFIGS), after.configs.get(resource, EMPTY_CONFIGS)
        topic = before.topics.get(resource_name) if resource_type == ConfigResourceType.TOPIC else None
        if topic is not None and topic.topic_id not in after.topics_by_id:
            old = EMPTY_CONFIGS  # removed with the topic
        for name in _keys_of(old, new):
            if old.get(name) != new.get(name):
                yield stored.ConfigRecord(
                    resource_type=resource_type, resource_name=resource_name, name=name, value=new.get(name)
                )


def _keys_of(before: Mapping[K, object], after: Mapping[K, object]) -> list[K]:
    return list(dict.fromkeys((*before, *after)))
