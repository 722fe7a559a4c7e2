"""ElectLeaders: preferred or unclean elections on request (KIP-183, KIP-460). Pure."""

from __future__ import annotations

from typing import Final

from triokafka import errors
from triokafka.broker_stub.controller.elections import Election
from triokafka.broker_stub.controller.outcome import MAX_RECORDS_PER_OPERATION, Outcome, Steps
from triokafka.broker_stub.controller.partition_change import TopicConfig, partition_change
from triokafka.broker_stub.metadata.image import NO_LEADER, MetadataImage, PartitionImage
from triokafka.broker_stub.metadata.item_error import NO_ERROR, ItemError
from triokafka.protocol.api.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from triokafka.protocol.stored.cluster_metadata import PartitionChangeRecord

_TYPES: Final = {0: Election.PREFERRED, 1: Election.UNCLEAN}


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
