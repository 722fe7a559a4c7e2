"""Applying metadata to the partitions of a broker: roles, new and deleted partitions, topic configurations."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

from triokafka import errors
from triokafka.broker_stub.log.log_manager import LogManager
from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.image import EMPTY_IMAGE, MetadataImage, TopicImage
from triokafka.broker_stub.replica.hosted_partitions import HostedPartitions
from triokafka.broker_stub.replica.partition import Partition
from triokafka.broker_stub.replica.partition_opener import PartitionOpener
from triokafka.broker_stub.replica.replica_listener import LeadershipChange
from triokafka.broker_stub.replica.replication_quota import ReplicationQuota
from triokafka.protocol.configuration import ConfigResourceType
from triokafka.structs import TopicPartition

logger = logging.getLogger(__name__)


class ReplicaFetchers(Protocol):
    """The fetchers of a broker, which replicate partitions from their leaders."""

    def remove(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching partitions; responses that are on their way are not applied to them."""

    def follow(self, partitions: Iterable[Partition], image: MetadataImage) -> None:
        """Fetch partitions from their leaders, from their log end offsets on."""

    def brokers_changed(self, image: MetadataImage) -> None:
        """Follow changes of the brokers' addresses, and of which brokers are up."""


class DeltaApplier:
    """Applies metadata changes to partitions, logs and fetchers."""

    def __init__(
        self,
        node_id: int,
        logs: LogManager,
        hosted: HostedPartitions,
        opener: PartitionOpener,
        fetchers: ReplicaFetchers,
        quotas: Iterable[ReplicationQuota] = (),
    ) -> None:
        self._node_id = node_id
        self._logs = logs
        self._hosted = hosted
        self._opener = opener
        self._fetchers = fetchers
        self._quotas = tuple(quotas)

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> list[LeadershipChange]:
        """Apply ``delta``, whose result is ``image``; return the partitions whose role changed, deletions first.

        A partition whose log cannot be created or opened goes offline; the others are not affected. Fetching stops
        before a replica leads or goes away, and starts again when its leader or the leader's epoch is new.
        """
        opener, fetchers = self._opener, self._fetchers
        first = opener.image is EMPTY_IMAGE
        if first:
            opener.begin_with(image)
        opener.image = image
        if delta.changed_configs:
            for quota in self._quotas:
                quota.configure(image, delta.changed_configs)
        changes: list[LeadershipChange] = []
        local = delta.local_changes(self._node_id)
        fetchers.remove([*local.deleted, *local.leaders])
        to_follow: list[Partition] = []
        new_followers: set[int] = set()
        for topic_partition in local.deleted:
            self._drop(topic_partition)
            changes.append(LeadershipChange(topic_partition, leads=False, leader_epoch=-1))
        for states in (local.leaders, local.followers):
            for topic_partition, (_, state) in states.items():
                try:
                    partition = opener.open(topic_partition)
                except (OSError, errors.KafkaError) as error:
                    opener.open_failed(topic_partition, error)
                    continue
                if opener.change_role(partition, state):
                    if partition.is_leader:
                        new_followers.update(partition.followers)
                    else:
                        to_follow.append(partition)
                    changes.append(LeadershipChange(topic_partition, partition.is_leader, state.leader_epoch))
        for resource_type, name in delta.changed_configs:
            if resource_type == ConfigResourceType.TOPIC and name in image.topics:
                self._reconfigure(image.topics[name], image)
        fetchers.follow(to_follow, image)
        # A broker that may join the in-sync sets now proves with its next fetch that it has everything.
        unfenced = {broker_id for broker_id in delta.changed_brokers if opener.is_active(broker_id)}
        self._hosted.interrupt_followers(sorted(new_followers | unfenced))
        if delta.changed_brokers:
            fetchers.brokers_changed(image)
        if first:
            self._logs.forget_removed_topics()
        return changes

    def _reconfigure(self, topic: TopicImage, image: MetadataImage) -> None:
        config = self._logs.config_for(image.topic_configs(topic.name))
        for number in topic.partitions:
            partition = self._hosted.find(topic.name, number)
            if partition is not None:
                partition.log.update_config(config)
                self._hosted.flushed(partition.topic_partition)  # without flush.messages, no record waits for a flush

    def reconfigure_all(self, image: MetadataImage) -> None:
        """Update the configuration of every log after a change of the broker's defaults."""
        self._opener.forget_opened_ahead()
        for name in {partition.topic_partition.topic for partition in self._hosted.online.values()}:
            if name in image.topics:
                self._reconfigure(image.topics[name], image)

    def _drop(self, topic_partition: TopicPartition) -> None:
        self._opener.forget_failure(topic_partition)
        hosted = self._hosted.take_out(topic_partition)
        if hosted is not None or self._logs.get(topic_partition) is not None:
            try:
                self._logs.delete(topic_partition, sync=False)
            except errors.KafkaStorageError as error:
                logger.error("%s: deleting the log failed: %s", topic_partition, error)
        self._hosted.complete_waiting(topic_partition)
