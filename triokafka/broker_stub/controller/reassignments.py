"""Reassigning the replicas of partitions to brokers (KIP-455).

Pure. A new reassignment sets the replicas to the union of old and new ones. `partition_change` completes it when the
whole target is in sync. With a single broker, the only possible target is the current placement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from triokafka import errors
from triokafka.broker_stub.controller.manual_placement import check_replicas
from triokafka.broker_stub.controller.outcome import MAX_RECORDS_PER_OPERATION, Outcome, Steps
from triokafka.broker_stub.controller.partition_change import (
    RECOVERING,
    LivenessChange,
    TopicConfig,
    Wanted,
    partition_change,
)
from triokafka.broker_stub.metadata.image import MetadataImage, PartitionImage, TopicImage
from triokafka.broker_stub.metadata.item_error import NO_ERROR, ItemError
from triokafka.protocol.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from triokafka.protocol.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from triokafka.protocol.stored.cluster_metadata import PartitionChangeRecord


def alter_reassignments(
    image: MetadataImage, request: AlterPartitionReassignmentsRequest, topic_config: TopicConfig
) -> Steps[AlterPartitionReassignmentsResponse]:
    """Begin, change or cancel reassignments; each partition succeeds or fails on its own."""
    records: list[PartitionChangeRecord] = []
    topics = []
    for asked in request.topics:
        times = Counter(partition.partition_index for partition in asked.partitions)
        results = []
        for wanted in asked.partitions:
            yield 1
            failure = NO_ERROR
            try:
                if times[wanted.partition_index] > 1:
                    raise errors.InvalidRequestError("The request names the partition twice.")
                topic, partition = _find(image, asked.name, wanted.partition_index)
                record = _change(image, topic, partition, wanted, request.allow_replication_factor_change, topic_config)
                if record is not None:
                    if len(records) == MAX_RECORDS_PER_OPERATION:
                        raise errors.PolicyViolationError("The request has too many reassignments: split it.")
                    records.append(record)
            except errors.BrokerResponseError as error:
                failure = ItemError.of(error)
            results.append(
                ReassignablePartitionResponse(
                    partition_index=wanted.partition_index, error_code=failure.code, error_message=failure.message
                )
            )
        topics.append(ReassignableTopicResponse(name=asked.name, partitions=results))
    return Outcome(
        records,
        AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_message=None,
            responses=topics,
        ),
    )


def _find(image: MetadataImage, name: str, number: int) -> tuple[TopicImage, PartitionImage]:
    topic = image.topics.get(name)
    if topic is None:
        raise errors.UnknownTopicOrPartitionError(f"Unable to find a topic named {name}.")
    partition = topic.partitions.get(number)
    if partition is None:
        raise errors.UnknownTopicOrPartitionError(f"Unable to find partition {name}:{number}.")
    return topic, partition


def _change(
    image: MetadataImage,
    topic: TopicImage,
    partition: PartitionImage,
    wanted: ReassignablePartition,
    may_change_count: bool,
    topic_config: TopicConfig,
) -> PartitionChangeRecord | None:
    if wanted.replicas is None:
        return _cancel(image, topic, partition, topic_config)
    _check_target(image, partition, wanted.replicas, may_change_count)
    target = tuple(wanted.replicas)
    # The new replicas come first, so that the first of them is the preferred leader as soon as it is in sync.
    removing = tuple(sorted(replica for replica in partition.replicas if replica not in target))
    adding = tuple(sorted(replica for replica in target if replica not in partition.replicas))
    # A target among the present replicas does not change which of them a reassignment has added.
    adding = adding or partition.adding_replicas
    return partition_change(
        image,
        topic,
        partition,
        topic_config,
        wanted=Wanted(replicas=(*target, *removing), adding_replicas=adding, removing_replicas=removing),
    )


def _cancel(
    image: MetadataImage, topic: TopicImage, partition: PartitionImage, topic_config: TopicConfig
) -> PartitionChangeRecord | None:
    if not partition.reassigning:
        raise errors.NoReassignmentInProgressError("No partition reassignment is in progress.")
    unclean = topic_config(topic.name).unclean_leader_election_enable
    replicas = tuple(replica for replica in partition.replicas if replica not in partition.adding_replicas)
    isr = tuple(replica for replica in partition.isr if replica in replicas)
    if not replicas:
        raise errors.InvalidReplicationAssignmentError(
            "Invalid replica assignment: addingReplicas contains all replicas."
        )
    if not (isr or unclean):
        raise errors.InvalidReplicationAssignmentError(
            f"Unable to revert partition assignment for {topic.name}:{partition.partition} because it would require an "
            "unclean leader election."
        )
    wanted = Wanted(replicas=replicas, isr=isr, adding_replicas=(), removing_replicas=())
    if not isr:  # an unclean election: the new leader may lack records
        alive = [
            replica
            for replica in replicas
            if LivenessChange().acceptable(image, replica, partition.directory_of(replica))
        ]
        if not alive:
            raise errors.InvalidReplicationAssignmentError(
                f"Unable to revert partition assignment for {topic.name}:{partition.partition} because none of the "
                "original replicas is available."
            )
        wanted = wanted._replace(isr=(alive[0],), leader_recovery_state=RECOVERING)
    return partition_change(image, topic, partition, topic_config, wanted=wanted)


def _check_target(
    image: MetadataImage, partition: PartitionImage, target: Sequence[int], may_change_count: bool
) -> None:
    check_replicas(image, target)
    count = len(set(partition.replicas) - set(partition.removing_replicas))
    if not may_change_count and len(target) != count:
        raise errors.InvalidReplicationFactorError(f"The replication factor is changed from {count} to {len(target)}")


def list_reassignments(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> Steps[ListPartitionReassignmentsResponse]:
    """Return the reassignments in progress, of all partitions or of those in the request.

    The result omits partitions that do not exist.
    """
    if request.topics is None:
        asked = [(topic.name, sorted(topic.partitions)) for topic in image.topics.values()]
    else:
        asked = [(topic.name, list(topic.partition_indexes)) for topic in request.topics]
    found = []
    for name, numbers in asked:
        partitions = []
        for number in numbers:
            yield 1
            partition = image.partition(name, number)
            if partition is not None and partition.reassigning:
                partitions.append(
                    OngoingPartitionReassignment(
                        partition_index=number,
                        replicas=list(partition.replicas),
                        adding_replicas=list(partition.adding_replicas),
                        removing_replicas=list(partition.removing_replicas),
                    )
                )
        if partitions:
            found.append(OngoingTopicReassignment(name=name, partitions=partitions))
    return Outcome([], ListPartitionReassignmentsResponse(error_message=None, topics=found))
