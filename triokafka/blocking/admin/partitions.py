"""The calls of `KafkaAdminClient` about partitions: offsets, records, leaders and replicas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from triokafka.blocking.admin.session import AdminSession, class_of, code_of, message_of, raise_first
from triokafka.blocking.admin.topics import TopicCalls
from triokafka.blocking.admin.types import PartitionProducerState, ProducerState
from triokafka.blocking.enums import IsolationLevel, OffsetSpec
from triokafka.blocking.errors import NoError
from triokafka.blocking.structs import TopicPartitionReplica
from triokafka.client.admin import ElectionType
from triokafka.client.admin import TopicPartitionReplica as SdkReplica
from triokafka.errors import KafkaError, UnsupportedVersionError
from triokafka.structs import OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from triokafka import AdminClient

_SPECS: Final = {
    OffsetSpec.LATEST: "latest",
    OffsetSpec.EARLIEST: "earliest",
    OffsetSpec.MAX_TIMESTAMP: "max_timestamp",
}


class PartitionResult(NamedTuple):
    """The result of an election in one partition."""

    partition_id: int
    error_code: int
    error_message: str | None


class ReplicaElectionResult(NamedTuple):
    """The results of elections in one topic."""

    topic: str
    partition_result: list[PartitionResult]


class ElectLeadersResponse(NamedTuple):
    """The results of elections."""

    throttle_time_ms: int
    error_code: int
    replica_election_results: list[ReplicaElectionResult]


class PartitionCalls:
    """Looks up offsets, deletes records, elects leaders and moves replicas."""

    def __init__(self, session: AdminSession, topics: TopicCalls) -> None:
        self._session = session
        self._topics = topics

    def delete_records(
        self,
        records_to_delete: Mapping[TopicPartition, int],
        timeout_ms: float | None = None,
        partition_leader_id: int | None = None,
    ) -> dict[TopicPartition, dict[str, int]]:
        """Delete the records of partitions before an offset (-1: all of them).

        ``partition_leader_id`` names the leader, which is looked up otherwise. Raises the first error after all
        partitions were tried.
        """
        patience = self._session.timeout_ms(timeout_ms)
        offsets = {TopicPartition(*partition): offset for partition, offset in records_to_delete.items()}
        outcomes = self._session.change(
            offsets, lambda admin: admin.delete_records(offsets, leader_id=partition_leader_id, timeout_ms=patience)
        )
        raise_first(outcomes.values())
        return {
            partition: {"partition_index": partition.partition, "low_watermark": low, "error_code": 0}
            for partition, low in outcomes.items()
        }

    def list_partition_offsets(
        self,
        topic_partition_specs: Mapping[TopicPartition, OffsetSpec | int],
        isolation_level: IsolationLevel | str | int = IsolationLevel.READ_UNCOMMITTED,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Look up offsets: an `OffsetSpec`, or the first offset at or after a time in milliseconds.

        Raises:
            UnsupportedVersionError: the spec is about tiered storage.
            UnknownTopicOrPartitionError: the partition does not exist.
        """
        wanted = {TopicPartition(*partition): _spec(spec) for partition, spec in topic_partition_specs.items()}
        level = IsolationLevel.build_from(isolation_level).name.lower()

        async def ask(admin: AdminClient) -> dict[TopicPartition, OffsetAndTimestamp]:
            return dict(
                await admin.list_offsets(wanted, isolation_level=level, timeout_ms=self._session.timeout_ms(timeout_ms))
            )

        return self._session.run(ask)

    def elect_leaders(
        self,
        election_type: ElectionType | int,
        topic_partitions: Mapping[str, Iterable[int]] | Sequence[str] | None = None,
        timeout_ms: float | None = None,
        raise_errors: bool = True,
    ) -> Any:
        """Elect the preferred replica of partitions as leader (0), or any live one (1, unclean).

        Arguments:
            topic_partitions: partition numbers by topic, or topics; None for all.
            raise_errors: raise the first error after all partitions were tried.

        Returns an object whose ``replica_election_results`` have the protocol's field names. A partition that needs no
        election has the code of `ElectionNotNeededError`, which is not raised.
        """
        kind = ElectionType(election_type)
        patience = self._session.timeout_ms(timeout_ms)
        partitions = self.resolve(topic_partitions)

        async def elect(admin: AdminClient) -> dict[TopicPartition, bool]:
            elected = set(await admin.elect_leaders(partitions, election_type=kind, timeout_ms=patience))
            return {partition: partition in elected for partition in partitions}

        outcomes = self._session.change(partitions, elect)
        if raise_errors:
            raise_first(outcomes.values())
        topics: dict[str, list[PartitionResult]] = {}
        for (topic, partition), outcome in outcomes.items():
            not_needed = not isinstance(outcome, KafkaError) and not outcome
            code = 84 if not_needed else code_of(outcome)
            topics.setdefault(topic, []).append(PartitionResult(partition, code, message_of(outcome)))
        return ElectLeadersResponse(0, 0, [ReplicaElectionResult(topic, found) for topic, found in topics.items()])

    def resolve(self, given: Any) -> list[TopicPartition]:
        """Return the partitions that ``given`` means: numbers by topic, or all partitions of topics (None: of all)."""
        if isinstance(given, Mapping):
            return [TopicPartition(topic, number) for topic, numbers in given.items() for number in numbers]
        return [
            TopicPartition(topic["name"], partition["partition_index"])
            for topic in self._topics.describe_topics(given)
            for partition in topic["partitions"]
        ]

    def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | Any | None],  # checked below
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, type[KafkaError] | None]:
        """Start moving partitions to other brokers; None cancels a move. Returns the class of each error, or None.

        Raises:
            UnsupportedVersionError: the broker is older than 2.4.
        """
        for partition, replicas in reassignments.items():
            if replicas is not None and not replicas:
                raise ValueError(f"Replica list for {partition} must be non-empty; use None to cancel a reassignment.")
            if replicas is not None and not all(isinstance(one, int) for one in replicas):
                raise ValueError(f"Replica list for {partition} must be int broker_ids.")
        patience = self._session.timeout_ms(timeout_ms)
        outcomes = self._session.change(
            reassignments, lambda admin: admin.alter_partition_reassignments(reassignments, timeout_ms=patience)
        )
        classes = {partition: class_of(outcome) for partition, outcome in outcomes.items()}
        return {partition: None if found is NoError else found for partition, found in classes.items()}

    def list_partition_reassignments(
        self,
        topic_partitions: Mapping[str, Iterable[int]] | Iterable[TopicPartition] | None = None,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, dict[str, list[int]]]:
        """List the moves in progress, of all or of the given partitions.

        Raises:
            UnsupportedVersionError: the broker is older than 2.4.
        """
        wanted: list[TopicPartition] | None = None
        if isinstance(topic_partitions, Mapping):
            wanted = self.resolve(topic_partitions)
        elif topic_partitions is not None:
            wanted = [TopicPartition(*partition) for partition in topic_partitions]
        patience = self._session.timeout_ms(timeout_ms)
        found = self._session.run(lambda admin: admin.list_partition_reassignments(wanted, timeout_ms=patience))
        return {
            partition: {
                "replicas": list(move.replicas),
                "adding_replicas": list(move.adding_replicas),
                "removing_replicas": list(move.removing_replicas),
            }
            for partition, move in found.items()
        }

    def describe_producers(
        self, partitions: Iterable[TopicPartition], broker_id: int | None = None
    ) -> dict[TopicPartition, PartitionProducerState]:
        """List the producers known to the leaders of partitions, or to broker ``broker_id``."""
        wanted = [TopicPartition(*partition) for partition in partitions]

        async def ask(admin: AdminClient) -> dict[TopicPartition, PartitionProducerState]:
            found = await admin.describe_producers(wanted, node_id=broker_id, timeout_ms=self._session.timeout_ms())
            return {
                partition: PartitionProducerState(
                    [
                        ProducerState(
                            one.producer_id,
                            one.producer_epoch,
                            one.last_sequence,
                            one.last_timestamp,
                            one.coordinator_epoch,
                            one.current_transaction_start_offset,
                        )
                        for one in producers
                    ]
                )
                for partition, producers in found.items()
            }

        return self._session.run(ask)

    def alter_replica_log_dirs(
        self,
        replica_assignments: Mapping[TopicPartitionReplica | Any, str],  # also with plain tuples
    ) -> dict[TopicPartitionReplica, type[KafkaError]]:
        """Move replicas to other directories of their brokers. Returns the class of each error, or `NoError`."""
        patience = self._session.timeout_ms()
        wanted = {SdkReplica(*replica): path for replica, path in replica_assignments.items()}
        outcomes = self._session.change(wanted, lambda admin: admin.alter_replica_log_dirs(wanted, timeout_ms=patience))
        return {TopicPartitionReplica(*replica): class_of(outcome) for replica, outcome in outcomes.items()}


def _spec(given: Any) -> str | int:
    if not isinstance(given, int):
        raise TypeError(f"Unsupported ts type {type(given)}, expected int or OffsetSpec")
    if given >= 0:
        return int(given)
    spec = OffsetSpec.build_from(int(given))
    if spec not in _SPECS:
        raise UnsupportedVersionError(f"{spec.name}: triokafka has no tiered storage")
    return _SPECS[spec]
