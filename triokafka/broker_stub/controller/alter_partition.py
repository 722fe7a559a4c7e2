"""AlterPartition: a leader proposes an in-sync set, and the controller decides (KIP-497, KIP-841, KIP-903).

Pure. The request's partition epoch is compared with the image's, so that no change is lost. A replica counts as in sync
only while its broker is up with the registration that the leader has seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from triokafka import errors
from triokafka.broker_stub.controller.broker_control import check_broker_epoch
from triokafka.broker_stub.controller.outcome import Outcome
from triokafka.broker_stub.controller.partition_change import (
    RECOVERED,
    RECOVERING,
    TopicConfig,
    Wanted,
    partition_change,
)
from triokafka.broker_stub.metadata.image import MetadataImage, PartitionImage
from triokafka.protocol.api.alter_partition import (
    AlteredPartition,
    AlteredTopic,
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
    TopicData,
)
from triokafka.protocol.stored.cluster_metadata import PartitionChangeRecord

_ANY_EPOCH: Final = -1


def alter_partition(
    image: MetadataImage, request: AlterPartitionRequest, topic_config: TopicConfig
) -> Outcome[AlterPartitionResponse]:
    """Change in-sync sets as the leaders propose; each partition succeeds or fails independently.

    Raises:
        BrokerIdNotRegisteredError, StaleBrokerEpochError: the requesting broker is not registered with this epoch.
    """
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    records: list[PartitionChangeRecord] = []
    topics = []
    for asked in request.topics:
        partitions = [
            _answer(image, asked, partition, request, topic_config, records) for partition in asked.partitions
        ]
        topics.append(AlteredTopic(topic_id=asked.topic_id, partitions=partitions))
    return Outcome(records, AlterPartitionResponse(topics=topics))


def _answer(
    image: MetadataImage,
    asked: TopicData,
    wanted: PartitionData,
    request: AlterPartitionRequest,
    topic_config: TopicConfig,
    records: list[PartitionChangeRecord],
) -> AlteredPartition:
    try:
        partition, record = _altered(image, asked, wanted, request, topic_config)
    except errors.BrokerResponseError as error:
        return AlteredPartition(partition_index=wanted.partition_index, error_code=error.code)
    if record is not None:
        records.append(record)
    if partition.leader != request.broker_id:
        # The change completed a reassignment that removes the leader; it learns the rest from the image.
        return AlteredPartition(partition_index=wanted.partition_index, error_code=errors.NewLeaderElectedError.code)
    return AlteredPartition(
        partition_index=partition.partition,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )


def _altered(
    image: MetadataImage,
    asked: TopicData,
    wanted: PartitionData,
    request: AlterPartitionRequest,
    topic_config: TopicConfig,
) -> tuple[PartitionImage, PartitionChangeRecord | None]:
    topic = image.topics_by_id.get(asked.topic_id)
    if topic is None:
        raise errors.UnknownTopicIdError(f"unknown topic id {asked.topic_id}")
    partition = topic.partitions.get(wanted.partition_index)
    if partition is None:
        raise errors.UnknownTopicOrPartitionError(f"there is no partition {topic.name}-{wanted.partition_index}")
    # Before version 3, requests have no broker epochs of replicas.
    epochs = {state.broker_id: state.broker_epoch for state in wanted.new_isr_with_epochs}
    isr = [state.broker_id for state in wanted.new_isr_with_epochs] or list(wanted.new_isr)
    _check(partition, wanted, isr, request.broker_id)
    _check_eligible(image, partition, isr, epochs)
    record = partition_change(
        image,
        topic,
        partition,
        topic_config,
        wanted=Wanted(isr=tuple(isr), leader_recovery_state=wanted.leader_recovery_state),
    )
    return (partition if record is None else partition.after(record)), record


def _check(partition: PartitionImage, wanted: PartitionData, isr: Sequence[int], broker_id: int) -> None:
    if wanted.leader_epoch > partition.leader_epoch or wanted.partition_epoch > partition.partition_epoch:
        raise errors.NotControllerError("the leader has newer metadata than this controller")
    if wanted.leader_epoch < partition.leader_epoch:
        raise errors.FencedLeaderEpochError(
            f"leader epoch {wanted.leader_epoch} is old: the current one is {partition.leader_epoch}"
        )
    if broker_id != partition.leader:
        raise errors.InvalidRequestError(f"broker {broker_id} is not the leader: broker {partition.leader} is")
    if wanted.partition_epoch < partition.partition_epoch:
        raise errors.InvalidUpdateVersionError(
            f"partition epoch {wanted.partition_epoch} is old: the current one is {partition.partition_epoch}"
        )
    if len(set(isr)) < len(isr) or not set(isr) <= set(partition.replicas):
        raise errors.InvalidRequestError(f"{list(isr)} is not a subset of the replicas {list(partition.replicas)}")
    if partition.leader not in isr:
        raise errors.InvalidRequestError("the in-sync set must include the leader")
    if wanted.leader_recovery_state not in (RECOVERED, RECOVERING):
        raise errors.InvalidRequestError(f"unknown leader recovery state {wanted.leader_recovery_state}")
    if wanted.leader_recovery_state == RECOVERING and (len(isr) > 1 or partition.leader_recovery_state == RECOVERED):
        raise errors.InvalidRequestError(
            "a recovering leader must be the only in-sync replica, and a leader cannot set itself to recovering"
        )


def _check_eligible(
    image: MetadataImage, partition: PartitionImage, isr: Sequence[int], epochs: Mapping[int, int]
) -> None:
    for replica in isr:
        broker = image.brokers.get(replica)
        if broker is None or not broker.active:
            raise errors.IneligibleReplicaError(f"broker {replica} is fenced, stopping or not registered")
        if epochs.get(replica, _ANY_EPOCH) not in (_ANY_EPOCH, broker.broker_epoch):
            raise errors.IneligibleReplicaError(f"broker {replica} has restarted since the leader saw it in sync")
        if replica != partition.leader and not broker.has_online(partition.directory_of(replica)):
            raise errors.IneligibleReplicaError(f"the log directory of the replica on broker {replica} is offline")
