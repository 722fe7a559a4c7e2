"""New leaders of partitions after a broker or a directory comes or goes, or on request.

Pure functions of an image. `partition_change` decides about the single partition, and `elections` about its leader.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final
from uuid import UUID

from triokafka import errors
from triokafka.broker_stub.controller.elections import Election
from triokafka.broker_stub.controller.outcome import MAX_RECORDS_PER_OPERATION, Outcome, Steps
from triokafka.broker_stub.controller.partition_change import LivenessChange, TopicConfig, partition_change
from triokafka.broker_stub.metadata.image import NO_LEADER, MetadataImage, PartitionImage
from triokafka.broker_stub.metadata.item_error import NO_ERROR, ItemError
from triokafka.protocol.api.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from triokafka.protocol.stored.cluster_metadata import PartitionChangeRecord

MAX_ELECTIONS_AT_ONCE: Final = 1_000
"""The most leaders that one run of the automatic balancing moves; the next run continues."""

_TYPES: Final = {0: Election.PREFERRED, 1: Election.UNCLEAN}


def broker_fenced(image: MetadataImage, broker_id: int, topic_config: TopicConfig) -> Iterator[PartitionChangeRecord]:
    """Yield the changes when a broker is fenced: it leaves in-sync sets, and other brokers lead its partitions."""
    liveness = LivenessChange(removed=broker_id)
    for topic, partition in image.partitions():
        if broker_id in partition.isr or partition.leader == broker_id:
            record = partition_change(image, topic, partition, topic_config, liveness=liveness)
            if record is not None:
                yield record


def broker_ended_unclean(
    image: MetadataImage, broker_id: int, topic_config: TopicConfig
) -> Iterator[PartitionChangeRecord]:
    """Yield the changes when a broker ended without a clean shutdown (KIP-966).

    The end of its logs may be lost, so it is neither in sync nor an eligible leader until it has caught up again.
    """
    liveness = LivenessChange(unclean=broker_id)
    for topic, partition in image.partitions():
        if broker_id in partition.isr or broker_id in partition.eligible_leader_replicas:
            record = partition_change(image, topic, partition, topic_config, liveness=liveness)
            if record is not None:
                yield record


def directory_lost(
    image: MetadataImage, broker_id: int, directory_id: UUID, topic_config: TopicConfig
) -> Iterator[PartitionChangeRecord]:
    """Yield the changes when a log directory of a broker fails: its replicas there leave in-sync sets (KIP-858)."""
    liveness = LivenessChange(removed=broker_id)
    for topic, partition in image.partitions():
        if broker_id in partition.replicas and partition.directory_of(broker_id) == directory_id:
            record = partition_change(image, topic, partition, topic_config, liveness=liveness)
            if record is not None:
                yield record


def broker_unfenced(image: MetadataImage, broker_id: int, topic_config: TopicConfig) -> Iterator[PartitionChangeRecord]:
    """Yield the changes when a broker is unfenced: it leads partitions without a leader, if it may."""
    liveness = LivenessChange(added=broker_id)
    for topic, partition in image.partitions():
        if partition.leader == NO_LEADER:
            record = partition_change(image, topic, partition, topic_config, liveness=liveness)
            if record is not None:
                yield record


def imbalanced_brokers(image: MetadataImage, percentage: int) -> frozenset[int]:
    """Return the brokers of which more than ``percentage`` of the partitions that prefer them have another leader."""
    preferring, displaced = Counter[int](), Counter[int]()
    for _, partition in image.partitions():
        preferring[partition.preferred_leader] += 1
        displaced[partition.preferred_leader] += partition.leader != partition.preferred_leader
    return frozenset(
        broker_id for broker_id, count in displaced.items() if 100 * count > percentage * preferring[broker_id]
    )


def preferred_leaders(
    image: MetadataImage, topic_config: TopicConfig, *, percentage: int = 0
) -> list[PartitionChangeRecord]:
    """Return the changes that make preferred replicas leaders again, up to `MAX_ELECTIONS_AT_ONCE`.

    Brokers of which at most ``percentage`` of their preferred partitions have another leader are balanced.
    """
    records: list[PartitionChangeRecord] = []
    brokers = imbalanced_brokers(image, percentage)
    for topic, partition in image.partitions():
        if partition.leader != partition.preferred_leader and partition.preferred_leader in brokers:
            record = partition_change(image, topic, partition, topic_config, election=Election.PREFERRED)
            if record is not None and record.leader == partition.preferred_leader:
                records.append(record)
                if len(records) == MAX_ELECTIONS_AT_ONCE:
                    break
    return records


def unclean_leaders(image: MetadataImage, topic_config: TopicConfig) -> list[PartitionChangeRecord]:
    """Return the changes that give partitions without a leader any live one, up to `MAX_ELECTIONS_AT_ONCE`.

    Only partitions of topics with ``unclean.leader.election.enable``, which may have been set since they lost theirs.
    """
    records: list[PartitionChangeRecord] = []
    for topic, partition in image.partitions():
        if partition.leader == NO_LEADER and topic_config(topic.name).unclean_leader_election_enable:
            record = partition_change(image, topic, partition, topic_config, election=Election.UNCLEAN)
            if record is not None:
                records.append(record)
                if len(records) == MAX_ELECTIONS_AT_ONCE:
                    break
    return records


def elect_leaders(
    image: MetadataImage, request: ElectLeadersRequest, topic_config: TopicConfig
) -> Steps[ElectLeadersResponse]:
    """Elect the preferred replicas of partitions, or any live replicas; each succeeds or fails independently.

    If the request means all partitions, the response omits partitions without a change, but has their topics.

    Raises:
        InvalidRequestError: the election type is unknown.
    """
    election = _TYPES.get(request.election_type)
    if election is None:
        raise errors.InvalidRequestError(f"Unknown election type {request.election_type}")
    everything = request.topic_partitions is None
    if request.topic_partitions is None:
        asked = [(topic.name, sorted(topic.partitions)) for topic in image.topics.values()]
    else:
        asked = [(topic.topic, list(topic.partitions)) for topic in request.topic_partitions]
    records: list[PartitionChangeRecord] = []
    results: list[ReplicaElectionResult] = []
    for name, numbers in asked:
        partition_results = []
        for number in dict.fromkeys(numbers):
            yield 1
            failure = NO_ERROR
            try:
                record = _elect(image, name, number, election, topic_config)
                if len(records) == MAX_RECORDS_PER_OPERATION:
                    raise errors.PolicyViolationError("The request has too many elections: split it.")
                records.append(record)
            except errors.ElectionNotNeededError as error:
                if everything:
                    continue
                failure = ItemError.of(error)
            except errors.BrokerResponseError as error:
                failure = ItemError.of(error)
            partition_results.append(
                PartitionResult(partition_id=number, error_code=failure.code, error_message=failure.message)
            )
        results.append(ReplicaElectionResult(topic=name, partition_result=partition_results))
    return Outcome(records, ElectLeadersResponse(replica_election_results=results))


def _elect(
    image: MetadataImage, name: str, number: int, election: Election, topic_config: TopicConfig
) -> PartitionChangeRecord:
    topic = image.topics.get(name)
    if topic is None:
        raise errors.UnknownTopicOrPartitionError(f"No such topic as {name}")
    partition = topic.partitions.get(number)
    if partition is None:
        raise errors.UnknownTopicOrPartitionError(f"No such partition as {name}-{number}")
    if _led_as_wanted(partition, election):
        raise errors.ElectionNotNeededError("Leader election not needed for topic partition.")
    record = partition_change(image, topic, partition, topic_config, election=election)
    if record is None:
        if election is Election.PREFERRED:
            raise errors.PreferredLeaderNotAvailableError("The preferred leader was not available.")
        raise errors.EligibleLeadersNotAvailableError("Eligible topic partition leaders are not available.")
    return record


def _led_as_wanted(partition: PartitionImage, election: Election) -> bool:
    if election is Election.PREFERRED:
        return partition.leader == partition.preferred_leader
    return partition.leader != NO_LEADER
