"""AssignReplicasToDirs: a broker reports in which of its log directories its replicas are (KIP-858). Pure.

Replicas reported in a directory that the broker has not registered are in a failed one: they leave the in-sync sets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from triokafka import errors
from triokafka.broker_stub.controller.broker_control import check_broker_epoch
from triokafka.broker_stub.controller.outcome import Outcome
from triokafka.broker_stub.controller.partition_change import LivenessChange, TopicConfig, Wanted, partition_change
from triokafka.broker_stub.metadata import features
from triokafka.broker_stub.metadata.image import BrokerImage, MetadataImage
from triokafka.protocol.stored.cluster_metadata import PartitionChangeRecord

if TYPE_CHECKING:
    from triokafka.protocol.api.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse


def assign_replicas_to_directories(
    image: MetadataImage, request: AssignReplicasToDirsRequest, topic_config: TopicConfig
) -> Outcome[AssignReplicasToDirsResponse]:
    """Record the log directories of replicas; each replica succeeds or fails independently.

    Raises:
        UnsupportedVersionError: ``metadata.version`` is below 3.7.
        BrokerIdNotRegisteredError, StaleBrokerEpochError: the broker is not registered with this epoch.
    """
    from triokafka.protocol.api.assign_replicas_to_dirs import (
        AssignedDirectory,
        AssignedPartition,
        AssignedTopic,
        AssignReplicasToDirsResponse,
    )

    if not features.assigns_directories(image):
        raise errors.UnsupportedVersionError("Directory assignment is not supported yet.")
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    records: list[PartitionChangeRecord] = []
    directories = []
    for directory in request.directories:
        topics = []
        for topic in directory.topics:
            partitions = []
            for partition in topic.partitions:
                code = 0
                try:
                    records += _assign(
                        image, broker, directory.id, topic.topic_id, partition.partition_index, topic_config
                    )
                except errors.BrokerResponseError as error:
                    code = error.code
                partitions.append(AssignedPartition(partition_index=partition.partition_index, error_code=code))
            topics.append(AssignedTopic(topic_id=topic.topic_id, partitions=partitions))
        directories.append(AssignedDirectory(id=directory.id, topics=topics))
    return Outcome(records, AssignReplicasToDirsResponse(directories=directories))


def _assign(
    image: MetadataImage, broker: BrokerImage, directory: UUID, topic_id: UUID, number: int, topic_config: TopicConfig
) -> list[PartitionChangeRecord]:
    topic = image.topics_by_id.get(topic_id)
    if topic is None:
        raise errors.UnknownTopicIdError(f"there is no topic with the id {topic_id}")
    partition = topic.partitions.get(number)
    if partition is None:
        raise errors.UnknownTopicOrPartitionError(f"there is no partition {topic.name}-{number}")
    if broker.broker_id not in partition.replicas:
        raise errors.NotLeaderForPartitionError(f"broker {broker.broker_id} has no replica of {topic.name}-{number}")
    liveness = LivenessChange() if broker.has_online(directory) else LivenessChange(removed=broker.broker_id)
    record = partition_change(
        image,
        topic,
        partition,
        topic_config,
        liveness=liveness,
        wanted=Wanted(directories={broker.broker_id: directory}),
    )
    return [] if record is None else [record]
