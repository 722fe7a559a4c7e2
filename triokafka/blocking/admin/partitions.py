"""Offsets, records, leaders and replicas of partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from triokafka.blocking.admin.session import AdminPart, class_of, code_of, message_of, raise_first, together
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
    """What an election came to in one partition."""

    partition_id: int
    error_code: int
    error_message: str | None


class ReplicaElectionResult(NamedTuple):
    """What elections came to in one topic."""

    topic: str
    partition_result: list[PartitionResult]


class ElectLeadersResponse(NamedTuple):
    """What elections came to."""

    throttle_time_ms: int
    error_code: int
    replica_election_results: list[ReplicaElectionResult]


class PartitionPart(AdminPart):
    """The part of `KafkaAdminClient` about partitions."""

    def delete_records(
        self,
        records_to_delete: Mapping[TopicPartition, int],
        timeout_ms: float | None = None,
        partition_leader_id: int | None = None,
    ) -> dict[TopicPartition, dict[str, int]]:
        """Delete the records of partitions before an offset (-1: all of them).

        Leaders are looked up, unless ``partition_leader_id`` names the broker to ask. Raises the first error, after all
        were tried.
        """
        patience = self._validate_timeout(timeout_ms)

        offsets = {TopicPartition(*partition): offset for partition, offset in records_to_delete.items()}

        async def delete(admin: AdminClient) -> dict[TopicPartition, Any]:
            return await together(
                offsets, admin.delete_records(offsets, leader_id=partition_leader_id, timeout_ms=patience)
            )

        outcomes = self._run(delete)
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
        """Look offsets up: an `OffsetSpec`, or the first offset at or after a time in milliseconds.

        Raises:
            UnsupportedVersionError: a spec about tiered storage.
            UnknownTopicOrPartitionError: there is no such partition.
        """
        wanted = {TopicPartition(*partition): _spec(spec) for partition, spec in topic_partition_specs.items()}
        level = IsolationLevel.build_from(isolation_level).name.lower()

        async def ask(admin: AdminClient) -> dict[TopicPartition, OffsetAndTimestamp]:
            return dict(
                await admin.list_offsets(wanted, isolation_level=level, timeout_ms=self._validate_timeout(timeout_ms))
            )

        return self._run(ask)

    def elect_leaders(
        self,
        election_type: ElectionType | int,
        topic_partitions: Mapping[str, Iterable[int]] | Sequence[str] | None = None,
        timeout_ms: float | None = None,
        raise_errors: bool = True,
    ) -> Any:
        """Have partitions led by their first replica (0), or by any that is alive (1).

        Arguments:
            topic_partitions: numbers by topic, or topics; None for all.
            raise_errors: raise the first error, after all were tried.

        Returns an object whose ``replica_election_results`` have the protocol's field names. A partition that is led as
        wanted has the code of `ElectionNotNeededError`, which is not raised.
        """
        kind = ElectionType(election_type)
        patience = self._validate_timeout(timeout_ms)
        partitions = self._topic_partitions(topic_partitions)

        async def elect(admin: AdminClient) -> dict[TopicPartition, Any]:
            async def change() -> dict[TopicPartition, bool]:
                led = set(await admin.elect_leaders(partitions, election_type=kind, timeout_ms=patience))
                return {partition: partition in led for partition in partitions}

            return await together(partitions, change())

        outcomes = self._run(elect)
        if raise_errors:
            raise_first(outcomes.values())
        topics: dict[str, list[PartitionResult]] = {}
        for (topic, partition), outcome in outcomes.items():
            not_needed = not isinstance(outcome, KafkaError) and not outcome
            code = 84 if not_needed else code_of(outcome)
            topics.setdefault(topic, []).append(PartitionResult(partition, code, message_of(outcome)))
        return ElectLeadersResponse(0, 0, [ReplicaElectionResult(topic, found) for topic, found in topics.items()])

    def _topic_partitions(self, given: Any) -> list[TopicPartition]:
        if isinstance(given, Mapping):
            return [TopicPartition(topic, number) for topic, numbers in given.items() for number in numbers]
        return [
            TopicPartition(topic["name"], partition["partition_index"])
            for topic in self.describe_topics(given)  # type: ignore[attr-defined]
            for partition in topic["partitions"]
        ]

    def alter_partition_reassignments(
        self, reassignments: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: float | None = None
    ) -> dict[TopicPartition, type[KafkaError] | None]:
        """Begin to move partitions to other brokers, or with None cancel that; the class of each error, or None.

        Raises:
            UnsupportedVersionError: the broker does not do that (triokafka's does not yet).
        """
        for partition, replicas in reassignments.items():
            if replicas is not None and not replicas:
                raise ValueError(f"Replica list for {partition} must be non-empty; use None to cancel a reassignment.")
            if replicas is not None and not all(isinstance(one, int) for one in replicas):
                raise ValueError(f"Replica list for {partition} must be int broker_ids.")
        patience = self._validate_timeout(timeout_ms)

        async def alter(admin: AdminClient) -> dict[TopicPartition, Any]:
            change = admin.alter_partition_reassignments(reassignments, timeout_ms=patience)
            return await together(reassignments, change)

        outcomes = self._run(alter)
        classes = {partition: class_of(outcome) for partition, outcome in outcomes.items()}
        return {partition: None if found is NoError else found for partition, found in classes.items()}

    def list_partition_reassignments(
        self,
        topic_partitions: Mapping[str, Iterable[int]] | Iterable[TopicPartition] | None = None,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, dict[str, list[int]]]:
        """The moves that are under way, all or of those partitions.

        Raises:
            UnsupportedVersionError: the broker does not do that (triokafka's does not yet).
        """
        wanted: list[TopicPartition] | None = None
        if isinstance(topic_partitions, Mapping):
            wanted = self._topic_partitions(topic_partitions)
        elif topic_partitions is not None:
            wanted = [TopicPartition(*partition) for partition in topic_partitions]
        patience = self._validate_timeout(timeout_ms)
        found = self._run(lambda admin: admin.list_partition_reassignments(wanted, timeout_ms=patience))
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
        """The producers that the leaders of partitions know, or the broker with ``broker_id``."""
        wanted = [TopicPartition(*partition) for partition in partitions]

        async def ask(admin: AdminClient) -> dict[TopicPartition, PartitionProducerState]:
            found = await admin.describe_producers(wanted, node_id=broker_id, timeout_ms=self._validate_timeout(None))
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

        return self._run(ask)

    def alter_replica_log_dirs(
        self, replica_assignments: Mapping[TopicPartitionReplica, str]
    ) -> dict[TopicPartitionReplica, type[KafkaError]]:
        """Move replicas to other directories of their brokers; the class of each error, or `NoError`."""
        patience = self._validate_timeout(None)

        async def alter(admin: AdminClient) -> dict[TopicPartitionReplica, Any]:
            wanted = {SdkReplica(*replica): path for replica, path in replica_assignments.items()}
            outcomes = await together(wanted, admin.alter_replica_log_dirs(wanted, timeout_ms=patience))
            return {TopicPartitionReplica(*replica): outcome for replica, outcome in outcomes.items()}

        return {replica: class_of(outcome) for replica, outcome in self._run(alter).items()}


def _spec(given: Any) -> str | int:
    if not isinstance(given, int):
        raise TypeError(f"Unsupported ts type {type(given)}, expected int or OffsetSpec")
    if given >= 0:
        return int(given)
    spec = OffsetSpec.build_from(int(given))
    if spec not in _SPECS:
        raise UnsupportedVersionError(f"{spec.name}: triokafka has no tiered storage")
    return _SPECS[spec]
