"""Applying metadata to the partitions of a broker: roles, new and deleted partitions, topic configurations."""

from __future__ import annotations

import logging
from uuid import UUID

from triokafka import errors
from triokafka.broker_stub.log.log_manager import LogManager
from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.image import EMPTY_IMAGE, MetadataImage, ResourceType, TopicImage
from triokafka.broker_stub.replica.hosted_partitions import HostedPartitions
from triokafka.broker_stub.replica.partition_opener import PartitionOpener
from triokafka.broker_stub.replica.replica_listener import LeadershipChange
from triokafka.structs import TopicPartition

logger = logging.getLogger(__name__)


class DeltaApplier:
    """Applies metadata changes to partitions and logs."""

    def __init__(
        self, node_id: int, logs: LogManager, hosted: HostedPartitions, opener: PartitionOpener, *, shares_logs: bool
    ) -> None:
        self._node_id = node_id
        self._logs = logs
        self._hosted = hosted
        self._opener = opener
        self._shares_logs = shares_logs

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> list[LeadershipChange]:
        """Apply ``delta``, whose result is ``image``; return the partitions whose role changed, deletions first.

        A partition whose log cannot be created or opened goes offline; the others are not affected.
        """
        opener = self._opener
        first = opener.image is EMPTY_IMAGE
        if first:
            opener.begin_with(image)
        opener.image = image
        changes: list[LeadershipChange] = []
        local = delta.local_changes(self._node_id)
        for topic_partition, topic_id in local.deleted.items():
            self._drop(topic_partition, topic_id)
            changes.append(LeadershipChange(topic_partition, leads=False, leader_epoch=-1))
        for leads, states in ((True, local.leaders), (False, local.followers)):
            for topic_partition, (_, state) in states.items():
                try:
                    partition = opener.open(topic_partition)
                except (OSError, errors.KafkaError) as error:
                    opener.open_failed(topic_partition, error)
                    continue
                if opener.change_role(partition, state):
                    changes.append(LeadershipChange(topic_partition, leads, state.leader_epoch))
        for resource_type, name in delta.changed_configs:
            if resource_type == ResourceType.TOPIC and name in image.topics:
                self._reconfigure(image.topics[name], image)
        if first:
            self._logs.removed_topics = frozenset()  # their logs are deleted now
        return changes

    def _reconfigure(self, topic: TopicImage, image: MetadataImage) -> None:
        config = self._logs.config_for(image.topic_configs(topic.name))
        for number in topic.partitions:
            partition = self._hosted.find(topic.name, number)
            if partition is not None:
                partition.log.update_config(config)

    def reconfigure_all(self, image: MetadataImage) -> None:
        """Update the configuration of every log after a change of the broker's defaults."""
        self._opener.forget_opened_ahead()
        for name in {partition.topic_partition.topic for partition in self._hosted.online.values()}:
            if name in image.topics:
                self._reconfigure(image.topics[name], image)

    def _drop(self, topic_partition: TopicPartition, topic_id: UUID) -> None:
        self._opener.forget_failure(topic_partition)
        hosted = self._hosted.online.pop(topic_partition, None)
        if self._shares_logs and (
            topic_id in self._opener.image.topics_by_id or self._logs.topic_id_of(topic_partition) != topic_id
        ):
            pass  # other brokers use the log, or it belongs to a new topic with that name
        elif hosted is not None or self._logs.get(topic_partition) is not None:
            try:
                self._logs.delete(topic_partition, sync=False)
            except errors.KafkaStorageError as error:
                logger.error("%s: deleting the log failed: %s", topic_partition, error)
        self._hosted.complete_waiting(topic_partition)
