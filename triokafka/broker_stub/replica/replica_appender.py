"""Appending to the partitions of a broker, and waiting until the records are committed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from triokafka import errors
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.prevalidation import PrevalidatedBatch, needs_prevalidation
from triokafka.broker_stub.log.verification_guard import UNVERIFIED_ALLOWED, VerificationGuard
from triokafka.broker_stub.purgatory.delayed_operation import Purgatory, monotonic_ms
from triokafka.broker_stub.replica.append_outcome import AppendOutcome
from triokafka.broker_stub.replica.delayed_produce import committed, flushed
from triokafka.broker_stub.replica.early_refusals import EarlyRefusals
from triokafka.broker_stub.replica.hosted_partitions import HostedPartitions
from triokafka.broker_stub.replica.partition import Partition
from triokafka.broker_stub.replica.partitions_operation import PartitionsOperation
from triokafka.broker_stub.replica.replica_traffic import ReplicaTraffic
from triokafka.structs import Buffer, TopicPartition
from triokafka.topic_names import INTERNAL_TOPICS
from triokafka.world import World

logger = logging.getLogger(__name__)

_NO_GUARDS: Final[Mapping[TopicPartition, VerificationGuard | None]] = {}


class ReplicaAppender:
    """Appends to partitions, with an outcome per partition, so that one failure does not affect the others.

    Args:
        partition: returns a hosted partition or raises; see `PartitionOpener.partition`.
    """

    def __init__(
        self,
        world: World,
        hosted: HostedPartitions,
        partition: Callable[[tuple[str, int]], Partition],
        purgatory: Purgatory,
        traffic: ReplicaTraffic,
    ) -> None:
        self._world = world
        self._hosted = hosted
        self._partition = partition
        self._purgatory = purgatory
        self._traffic = traffic
        self._early = EarlyRefusals()

    def batches_to_prevalidate(
        self, entries: Mapping[TopicPartition, Buffer | PrevalidatedBatch]
    ) -> dict[TopicPartition, tuple[Buffer, LogConfig]]:
        """Return the clients' batches that `prevalidate` should check before they are appended."""
        found = {}
        for topic_partition, data in entries.items():
            if isinstance(data, PrevalidatedBatch):
                continue
            partition = self._hosted.online.get(topic_partition)
            if partition is not None and needs_prevalidation(data, config := partition.log.config):
                found[topic_partition] = data, config
        return found

    def append(
        self,
        entries: Mapping[TopicPartition, Buffer | PrevalidatedBatch],
        *,
        required_acks: int,
        guards: Mapping[TopicPartition, VerificationGuard | None] = _NO_GUARDS,
    ) -> dict[TopicPartition, AppendOutcome]:
        """Append a client's batches to every partition as its leader.

        Clients may not write to internal topics. ``guards`` has the guards of transactional batches by partition; see
        `log.verification_guard`.
        """
        if required_acks not in (-1, 0, 1):
            code = errors.InvalidRequiredAcksError.code
            return {key: AppendOutcome(error_code=code) for key in entries}
        now_ms = self._world.wall_ms()
        outcomes: dict[TopicPartition, AppendOutcome] = {}
        for topic_partition, batches in entries.items():
            guard = guards.get(topic_partition) if guards else None
            outcomes[topic_partition] = self._append_one(topic_partition, batches, required_acks, now_ms, guard)
        return outcomes

    def _append_one(
        self,
        topic_partition: TopicPartition,
        batches: Buffer | PrevalidatedBatch,
        required_acks: int,
        now_ms: int,
        guard: VerificationGuard | None,
    ) -> AppendOutcome:
        data = batches.data if isinstance(batches, PrevalidatedBatch) else batches
        topic = topic_partition.topic
        hosted = partition = self._hosted.online.get(topic_partition)
        try:
            if topic in INTERNAL_TOPICS:
                raise errors.InvalidTopicError(f"{topic} is internal: clients may not write to it")
            if partition is None:
                partition = self._partition(topic_partition)
            if self._early.by_partition and partition.is_leader:
                for refused in self._early.take(topic_partition):
                    partition.log.producers.expect(refused, leader_epoch=partition.leader_epoch)
            info = partition.append(batches, required_acks=required_acks, now_ms=now_ms, guard=guard)
        except errors.BrokerResponseError as error:
            self._hosted.append_failed(topic_partition, error)
            if isinstance(error, (errors.NotLeaderForPartitionError, errors.UnknownTopicOrPartitionError)):
                self._early.note(topic_partition, data)
            self._traffic.refused(topic if hosted else None, len(data), error_code=error.code)
            log_start_offset = partition.log.log_start_offset if partition is not None else -1
            return AppendOutcome(
                error_code=error.code,
                log_start_offset=log_start_offset,
                error_message=str(error) or None,
                record_errors=getattr(error, "record_errors", ()),
            )
        except OSError as error:
            logger.error("%s: append failed: %s", topic_partition, error)
            self._hosted.append_failed(topic_partition, error)
            self._traffic.refused(topic if hosted else None, len(data), error_code=errors.KafkaStorageError.code)
            return AppendOutcome(error_code=errors.KafkaStorageError.code, error_message=f"the disk failed: {error}")
        self._traffic.appended(topic, len(data), info.last_offset - info.first_offset + 1)
        self._hosted.appended(partition)
        flushing = required_acks == 1 and partition.log.settled_offset <= info.last_offset
        return AppendOutcome(
            0, info.first_offset, info.last_offset, info.log_append_time, info.log_start_offset, flushing
        )

    def append_internal(
        self,
        topic_partition: TopicPartition,
        batches: Buffer,
        *,
        guard: VerificationGuard | None = UNVERIFIED_ALLOWED,
        transaction_version: int = 0,
    ) -> int:
        """Append records of the broker itself as with acks=all; return the offset after the last one. Arguments as
        `LogAppender`.

        Raises:
            BrokerResponseError: this broker does not lead the partition, or the log rejects the records; nothing was
                appended.
        """
        partition = self._partition(topic_partition)
        try:
            info = partition.append(
                batches,
                required_acks=-1,
                now_ms=self._world.wall_ms(),
                from_client=False,
                guard=guard,
                transaction_version=transaction_version,
            )
        except errors.KafkaStorageError as error:
            self._hosted.append_failed(topic_partition, error)
            raise
        self._hosted.appended(partition)
        return info.last_offset + 1

    def delay_produce(
        self, outcomes: Mapping[TopicPartition, AppendOutcome], timeout_ms: int, *, required_acks: int = -1
    ) -> PartitionsOperation[AppendOutcome] | None:
        """Return an operation that waits until the appended records are committed; None when they are.

        With ``required_acks`` 1, it waits for the leader's flush.
        """
        if required_acks == -1:
            for key, outcome in outcomes.items():
                if not outcome.error_code and not self._committed(key, outcome):
                    break
            else:
                return None
        pending = [key for key, outcome in outcomes.items() if not outcome.error_code]
        settled = flushed if required_acks == 1 else committed
        operation = PartitionsOperation(max(timeout_ms, 0), outcomes, self._partition, settled)
        self._purgatory.try_complete_else_watch(operation, pending, monotonic_ms(self._world))
        return None if operation.completed else operation

    def _committed(self, topic_partition: TopicPartition, outcome: AppendOutcome) -> bool:
        partition = self._hosted.online.get(topic_partition)
        return (
            partition is not None
            and partition.is_leader
            and partition.high_watermark > outcome.last_offset
            and partition.enough_replicas
        )
