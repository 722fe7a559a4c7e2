"""Reassignments and elections by request."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from tests.support.in_steps import done
from tests.unit.broker_stub.clusters import broker, cluster, replayed, topic
from triokafka import errors
from triokafka.broker_stub.controller.elect_leaders import elect_leaders
from triokafka.broker_stub.controller.leader_balancing import MAX_ELECTIONS_AT_ONCE, preferred_leaders
from triokafka.broker_stub.controller.reassignments import alter_reassignments, list_reassignments
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.metadata import MetadataImage, PartitionImage
from triokafka.protocol.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from triokafka.protocol.api.elect_leaders import ElectLeadersRequest, TopicPartitions
from triokafka.protocol.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    OngoingTopicReassignment,
)

PREFERRED, UNCLEAN = 0, 1


def clean(name: str) -> LogConfig:
    return LogConfig()


def reassign(
    image: MetadataImage, replicas: Sequence[int] | None, *, may_change_count: bool = True
) -> tuple[int, PartitionImage]:
    wanted = ReassignablePartition(partition_index=0, replicas=None if replicas is None else list(replicas))
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=may_change_count, topics=[ReassignableTopic(name="t", partitions=[wanted])]
    )
    outcome = done(alter_reassignments(image, request, clean))
    after = replayed(outcome.records, image)
    return outcome.response.responses[0].partitions[0].error_code, after.topics["t"].partitions[0]


def with_partition(image: MetadataImage, replicas: Sequence[int]) -> MetadataImage:
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=0, replicas=list(replicas))])
        ]
    )
    return replayed(done(alter_reassignments(image, request, clean)).records, image)


def listed_in(image: MetadataImage, request: ListPartitionReassignmentsRequest) -> list[OngoingTopicReassignment]:
    outcome = done(list_reassignments(image, request))
    assert not outcome.records
    return outcome.response.topics


def elect(
    image: MetadataImage, kind: int, topics: list[TopicPartitions] | None = None
) -> tuple[dict[int, int], MetadataImage]:
    outcome = done(elect_leaders(image, ElectLeadersRequest(election_type=kind, topic_partitions=topics), clean))
    codes = {
        partition.partition_id: partition.error_code
        for result in outcome.response.replica_election_results
        for partition in result.partition_result
    }
    return codes, replayed(outcome.records, image)


class TestReassignment:
    def test_old_and_new_replicas_hold_the_partition_until_the_new_ones_are_in_sync(self) -> None:
        """(AR := new + old)"""
        image = cluster(topic("t", [1, 2, 3]), brokers=(1, 2, 3, 4, 5))
        code, partition = reassign(image, [3, 4, 5])
        assert code == 0
        assert partition.replicas == (3, 4, 5, 1, 2)
        assert (partition.adding_replicas, partition.removing_replicas) == ((4, 5), (1, 2))
        assert (partition.leader, partition.isr, partition.leader_epoch) == (1, (1, 2, 3), 0)
        assert partition.directories[0] == uuid.UUID(int=2003)
        (listed,) = listed_in(with_partition(image, [3, 4, 5]), ListPartitionReassignmentsRequest())
        (found,) = listed.partitions
        assert (found.replicas, found.adding_replicas, found.removing_replicas) == ([3, 4, 5, 1, 2], [4, 5], [1, 2])

    def test_removing_replicas_completes_at_once(self) -> None:
        """A leader that stays gets a new epoch."""
        image = cluster(topic("t", [1, 2, 3], leader=2), brokers=(1, 2, 3))
        code, partition = reassign(image, [2, 3])
        assert (code, partition.replicas, partition.isr, partition.leader) == (0, (2, 3), (2, 3), 2)
        assert partition.leader_epoch == 1 and not partition.reassigning

    def test_leader_that_is_dropped_hands_over(self) -> None:
        image = cluster(topic("t", [1, 2, 3]), brokers=(1, 2, 3))
        _, partition = reassign(image, [3, 2])
        assert (partition.replicas, partition.leader, partition.isr) == ((3, 2), 3, (2, 3))

    def test_reordered_replicas_only_change_the_preferred_leader(self) -> None:
        image = cluster(topic("t", [1, 2]), brokers=(1, 2))
        code, partition = reassign(image, [2, 1])
        assert (code, partition.replicas, partition.leader, partition.leader_epoch) == (0, (2, 1), 1, 0)

    def test_cancelling_goes_back_to_where_it_was(self) -> None:
        image = with_partition(cluster(topic("t", [1, 2]), brokers=(1, 2, 3, 4)), [3, 4])
        code, partition = reassign(image, None)
        assert code == 0 and not partition.reassigning
        assert sorted(partition.replicas) == [1, 2] and partition.leader == 1
        assert listed_in(image, ListPartitionReassignmentsRequest(topics=[])) == []
        some = ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 8])
        (listed,) = listed_in(image, ListPartitionReassignmentsRequest(topics=[some]))
        assert [partition.partition_index for partition in listed.partitions] == [0]

    def test_change_of_the_replication_factor_is_refused_in_the_words_of_apache_kafka(self) -> None:
        """KIP-860. Replicas that a reassignment removes do not count."""
        image = with_partition(cluster(topic("t", [1, 2]), brokers=(1, 2, 3, 4)), [3, 4])
        partitions = [ReassignablePartition(partition_index=0, replicas=[1])]
        request = AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=False, topics=[ReassignableTopic(name="t", partitions=partitions)]
        )
        response = done(alter_reassignments(image, request, clean)).response
        (answer,) = response.responses[0].partitions
        assert answer.error_code == errors.InvalidReplicationFactorError.code
        assert answer.error_message == "The replication factor is changed from 2 to 1"

    def test_invalid_combinations_are_refused(self) -> None:
        image = cluster(topic("t", [1, 2]), brokers=(1, 2, 3))
        invalid = errors.InvalidReplicationAssignmentError.code
        assert reassign(image, [])[0] == invalid
        assert reassign(image, [1, 1])[0] == invalid
        assert reassign(image, [9])[0] == invalid
        assert reassign(image, None)[0] == errors.NoReassignmentInProgressError.code
        assert reassign(image, [1], may_change_count=False)[0] == errors.InvalidReplicationFactorError.code
        assert reassign(image, [3, 1], may_change_count=False)[0] == 0


class TestElection:
    def test_preferred_replica_that_is_in_sync_leads_again(self) -> None:
        image = cluster(topic("t", [1, 2], [1, 2], leader=2), brokers=(1, 2))
        codes, after = elect(image, PREFERRED)
        assert codes == {0: 0, 1: 0}
        assert {partition.leader for partition in after.topics["t"].partitions.values()} == {1}
        assert elect(after, PREFERRED) == ({}, after)

    def test_preferred_replica_that_is_not_in_sync_or_fenced_does_not(self) -> None:
        behind = cluster(topic("t", [1, 2], isr=[2], leader=2), brokers=(1, 2))
        fenced = cluster(topic("t", [1, 2], leader=2), broker(1, fenced=True), brokers=(2,))
        for image in (behind, fenced):
            codes, after = elect(image, PREFERRED)
            assert codes == {0: errors.PreferredLeaderNotAvailableError.code}
            assert after.topics["t"].partitions[0].leader == 2

    def test_preferred_election_without_a_leader_elects_any_in_sync_replica(self) -> None:
        """As in Kafka, which answers that the requested election was not the one that was needed."""
        image = cluster(topic("t", [1, 2], leader=-1), broker(1, fenced=True), brokers=(2,))
        codes, after = elect(image, PREFERRED)
        assert (codes, after.topics["t"].partitions[0].leader) == ({0: 0}, 2)
        assert preferred_leaders(image, clean) == []

    def test_unclean_election_elects_a_live_replica_only_without_a_leader(self) -> None:
        image = cluster(topic("t", [1, 2], isr=[1], leader=-1), broker(1, fenced=True), brokers=(2,))
        codes, after = elect(image, UNCLEAN)
        partition = after.topics["t"].partitions[0]
        assert (codes, partition.leader, partition.isr, partition.leader_recovery_state) == ({0: 0}, 2, (2,), 1)
        asked = [TopicPartitions(topic="t", partitions=[0])]
        assert elect(after, UNCLEAN, asked)[0] == {0: errors.ElectionNotNeededError.code}
        leaderless = cluster(topic("t", [1], isr=[1], leader=-1), broker(1, fenced=True), brokers=())
        assert elect(leaderless, UNCLEAN)[0] == {0: errors.EligibleLeadersNotAvailableError.code}

    def test_balance_moves_a_bounded_number_of_leaders_at_once(self) -> None:
        image = cluster(topic("t", *([1, 2] for _ in range(MAX_ELECTIONS_AT_ONCE + 5)), leader=2), brokers=(1, 2))
        first = preferred_leaders(image, clean)
        assert len(first) == MAX_ELECTIONS_AT_ONCE
        rest = preferred_leaders(replayed(first, image), clean)
        assert len(rest) == 5 and preferred_leaders(replayed(rest, replayed(first, image)), clean) == []
