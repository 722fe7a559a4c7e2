"""Leaders, replicas and producers of partitions: elect, reassign, describe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from triokafka.client.admin.call_routing import CallRouting
from triokafka.client.admin.partition_types import ElectionType, PartitionReassignment, ProducerDescription
from triokafka.client.admin.retries import AdminRetries, failure_of
from triokafka.client.admin.types import Results
from triokafka.errors import ElectionNotNeededError
from triokafka.protocol.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from triokafka.protocol.api.describe_producers import DescribeProducersRequest, TopicRequest
from triokafka.protocol.api.elect_leaders import ElectLeadersRequest, TopicPartitions
from triokafka.protocol.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from triokafka.structs import TopicPartition, by_topic


class PartitionAdmin:
    """The part of `AdminClient` about leaders and replicas."""

    def __init__(self, retries: AdminRetries) -> None:
        self._retries = retries

    async def elect_leaders(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        election_type: ElectionType = ElectionType.PREFERRED,
        timeout_ms: float | None = None,
    ) -> list[TopicPartition]:
        """Elect the preferred leaders of partitions (default all); return the partitions whose leader changed.

        A partition that already has the right leader is no error. An ``UNCLEAN`` election takes any live replica if no
        replica is in sync: records may be lost.

        Raises:
            PreferredLeaderNotAvailableError, EligibleLeadersNotAvailableError, UnknownTopicOrPartitionError, …: one
                partition could not be changed; an `ExceptionGroup` when several could not. The others are.
            UnsupportedVersionError: an unclean election with brokers before 2.4.
        """
        asked = None if partitions is None else list(dict.fromkeys(partitions))
        min_version = 1 if election_type is ElectionType.UNCLEAN else None
        found: dict[TopicPartition, Exception | None] = {}

        async def ask(call: CallRouting) -> None:
            request = ElectLeadersRequest(
                election_type=election_type,
                topic_partitions=None
                if asked is None
                else [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic(asked).items()],
                timeout_ms=call.left_ms,
            )
            response = await call.to_controller(request, min_version=min_version)
            self._retries.check(response.error_code, "the election")
            for topic in response.replica_election_results:
                for p in topic.partition_result:
                    tp = TopicPartition(topic.topic, p.partition_id)
                    found[tp] = self._retries.error(p.error_code, tp, p.error_message)

        await self._retries.once(ask, timeout_ms)
        failed = {tp: e for tp, e in found.items() if e is not None and not isinstance(e, ElectionNotNeededError)}
        changed = {tp: error is None for tp, error in found.items() if tp not in failed}
        if failed:
            raise failure_of(Results(changed, failed))
        return [tp for tp, was_needed in changed.items() if was_needed]

    async def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout_ms: float | None = None,
    ) -> None:
        """Begin to move partitions to other brokers (the preferred leader first); None cancels a move.

        Returns when the moves have begun; `list_partition_reassignments` shows their progress (KIP-455). Without
        ``allow_replication_factor_change`` (brokers from 4.0 on) the number of replicas must not change.

        Raises:
            InvalidReplicationAssignmentError, NoReassignmentInProgressError, UnknownTopicOrPartitionError, …: one
                partition could not be changed; an `ExceptionGroup` when several could not.
        """
        min_version = None if allow_replication_factor_change else 1

        async def do_round(items: list[TopicPartition], call: CallRouting) -> Mapping[TopicPartition, Exception | None]:
            request = AlterPartitionReassignmentsRequest(
                timeout_ms=call.left_ms,
                allow_replication_factor_change=allow_replication_factor_change,
                topics=[
                    ReassignableTopic(
                        name=topic,
                        partitions=[
                            ReassignablePartition(
                                partition_index=number,
                                replicas=None
                                if (replicas := reassignments[TopicPartition(topic, number)]) is None
                                else list(replicas),
                            )
                            for number in numbers
                        ],
                    )
                    for topic, numbers in by_topic(items).items()
                ],
            )
            response = await call.to_controller(request, min_version=min_version)
            self._retries.check(response.error_code, "the reassignment", response.error_message)
            outcomes: dict[TopicPartition, Exception | None] = {}
            for topic in response.responses:
                for p in topic.partitions:
                    tp = TopicPartition(topic.name, p.partition_index)
                    outcomes[tp] = self._retries.error(p.error_code, tp, p.error_message)
            return outcomes

        await self._retries.change(reassignments, do_round, timeout_ms)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """List the reassignments in progress, of the given partitions or all; other partitions are left out."""
        asked = None if partitions is None else list(dict.fromkeys(partitions))

        async def ask(call: CallRouting) -> dict[TopicPartition, PartitionReassignment]:
            request = ListPartitionReassignmentsRequest(
                timeout_ms=call.left_ms,
                topics=None
                if asked is None
                else [
                    ListPartitionReassignmentsTopics(name=topic, partition_indexes=numbers)
                    for topic, numbers in by_topic(asked).items()
                ],
            )
            response = await call.to_controller(request)
            self._retries.check(response.error_code, "reassignments", response.error_message)
            return {
                TopicPartition(topic.name, p.partition_index): PartitionReassignment(
                    tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas)
                )
                for topic in response.topics
                for p in topic.partitions
            }

        return await self._retries.once(ask, timeout_ms)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, node_id: int | None = None, timeout_ms: float | None = None
    ) -> Results[TopicPartition, tuple[ProducerDescription, ...]]:
        """Describe the producers known to the leaders of partitions, or to one broker (from 2.8 on; KIP-664).

        Reading a partition that failed raises its error: `BrokerNotAvailableError` for all if the cluster has no broker
        ``node_id``.
        """

        async def do_round(
            items: list[TopicPartition], call: CallRouting
        ) -> Mapping[TopicPartition, tuple[ProducerDescription, ...] | Exception]:
            outcomes: dict[TopicPartition, tuple[ProducerDescription, ...] | Exception] = {}
            for node, group in (await call.by_leader(items, outcomes, node_id)).items():
                request = DescribeProducersRequest(
                    topics=[
                        TopicRequest(name=topic, partition_indexes=numbers)
                        for topic, numbers in by_topic(group).items()
                    ]
                )
                response = await call.to_node(node, request)
                for topic in response.topics:
                    for p in topic.partitions:
                        tp = TopicPartition(topic.name, p.partition_index)
                        outcomes[tp] = self._retries.error(p.error_code, tp, p.error_message) or tuple(
                            ProducerDescription(
                                state.producer_id,
                                state.producer_epoch,
                                state.last_sequence,
                                state.last_timestamp,
                                state.coordinator_epoch,
                                state.current_txn_start_offset,
                            )
                            for state in p.active_producers
                        )
            return outcomes

        return await self._retries.each(partitions, do_round, timeout_ms)
